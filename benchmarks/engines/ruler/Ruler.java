import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import software.amazon.event.ruler.GenericMachine;

/**
 * Rules and events for event-ruler: started with a file of rules (JSON lines, [id, pattern]), one of events (JSON
 * lines), one for the pairs that it finds and the seconds to warm up. It says when it is ready, and then, for each line
 * that it reads, goes over all events until half a second has gone (the clock of processor time has steps of 10 ms) and
 * says what that took, in microseconds of processor time per event, collecting garbage included.
 */
@SuppressWarnings("deprecation")
public class Ruler {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long ROUND = 500_000_000L; // nanoseconds

    public static void main(String[] arguments) throws Exception {
        GenericMachine<Integer> machine = new GenericMachine<Integer>() {};
        long begin = SYSTEM.getProcessCpuTime();
        addRules(machine, Path.of(arguments[0]));
        double adding = (SYSTEM.getProcessCpuTime() - begin) / 1e9;
        List<String> events = Files.readAllLines(Path.of(arguments[1]));
        writePairs(machine, events, Path.of(arguments[2]));
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(arguments[3]));
        while (System.nanoTime() < end) {
            matchAll(machine, events);
        }
        System.out.println(adding);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            begin = SYSTEM.getProcessCpuTime();
            end = System.nanoTime() + ROUND;
            int passes = 0;
            do {
                matchAll(machine, events);
                passes++;
            } while (System.nanoTime() < end);
            System.out.println((SYSTEM.getProcessCpuTime() - begin) / 1e3 / events.size() / passes);
        }
    }

    private static void addRules(GenericMachine<Integer> machine, Path rules) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        for (String line : Files.readAllLines(rules)) {
            JsonNode rule = mapper.readTree(line);
            machine.addRule(rule.get(0).asInt(), rule.get(1).toString());
        }
    }

    private static int matchAll(GenericMachine<Integer> machine, List<String> events) throws Exception {
        int found = 0;
        for (String event : events) {
            found += machine.rulesForJSONEvent(event).size();
        }
        return found;
    }

    private static void writePairs(GenericMachine<Integer> machine, List<String> events, Path path) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(path))) {
            for (int number = 0; number < events.size(); number++) {
                for (Integer id : machine.rulesForJSONEvent(events.get(number))) {
                    out.println(number + " " + id);
                }
            }
        }
    }
}
