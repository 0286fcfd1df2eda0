// Rules and events for quamina: started with a file of rules (JSON lines, [id, pattern]), one of events (JSON lines),
// one for the pairs that it finds and the seconds to warm up. It says when it is ready, and then, for each line that it
// reads, makes one round over all events and says what that took, in microseconds of processor time per event.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/timbray/quamina"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readLines(path string) [][]byte {
	file, err := os.Open(path)
	fail(err)
	defer file.Close()
	lines := [][]byte{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<20)
	for scanner.Scan() {
		lines = append(lines, append([]byte{}, scanner.Bytes()...))
	}
	fail(scanner.Err())
	return lines
}

func addRules(matcher *quamina.Quamina, path string) {
	for _, line := range readLines(path) {
		var rule []json.RawMessage
		fail(json.Unmarshal(line, &rule))
		id, err := strconv.Atoi(string(rule[0]))
		fail(err)
		fail(matcher.AddPattern(id, string(rule[1])))
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	fail(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func matchAll(matcher *quamina.Quamina, events [][]byte) int {
	found := 0
	for _, event := range events {
		ids, err := matcher.MatchesForEvent(event)
		fail(err)
		found += len(ids)
	}
	return found
}

func writePairs(matcher *quamina.Quamina, events [][]byte, path string) {
	file, err := os.Create(path)
	fail(err)
	out := bufio.NewWriter(file)
	for number, event := range events {
		ids, err := matcher.MatchesForEvent(event)
		fail(err)
		for _, id := range ids {
			fmt.Fprintln(out, number, id)
		}
	}
	fail(out.Flush())
	fail(file.Close())
}

func main() {
	matcher, err := quamina.New()
	fail(err)
	begin := processorTime()
	addRules(matcher, os.Args[1])
	adding := processorTime() - begin
	events := readLines(os.Args[2])
	writePairs(matcher, events, os.Args[3])
	warm, err := strconv.ParseFloat(os.Args[4], 64)
	fail(err)
	for start := time.Now(); time.Since(start).Seconds() < warm; {
		matchAll(matcher, events)
	}
	fmt.Println(adding.Seconds())
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		begin := processorTime()
		matchAll(matcher, events)
		fmt.Println(float64((processorTime() - begin).Nanoseconds()) / 1000 / float64(len(events)))
	}
}
