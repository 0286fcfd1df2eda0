"""What functions_judge.py asks Spark about, by kind of result.

In a text {kind} is filled with a value of that kind, and «a b c» is one text for each of the words. `date` is a day
without a time for Spark, `small` a number that no function overflows with; what is `apart` is not nested.
"""

from __future__ import annotations

import re

_TEXTS = {
    "int": r"""
        ({int} «+ - * % DIV & | ^» {int})
        ({int} «<< >>» {small})
        («~ -»{int})
        «abs floor ceiling round negative»({int})
        «shiftleft shiftright»({int}, {small})
        «mod greatest coalesce nvl nullif ifnull»({int}, {int})
        least({int}, {int}, {small})
        «ceil floor»({double})
        round({int}, {digits})
        CAST({double} AS «BIGINT TINYINT»)
        CAST({string} AS «BIGINT SMALLINT»)
        CAST({int} AS «INT SMALLINT»)
        CAST({time} AS BIGINT)
        CAST({boolean} AS INT)
        «unix_timestamp unix_seconds unix_millis unix_micros»({time})
        if({boolean}, {int}, {int})
        nvl2({string}, {int}, {int})
        CASE WHEN {boolean} THEN {int} WHEN {boolean} THEN {int} ELSE {int} END
        CASE {int} WHEN {int} THEN {int} END
        datediff({time}, {time})
        date_diff({date}, {time})
        datediff({time text}, {time})
        year({time text})
    """,
    "small": r"""
        «length char_length character_length len»({string})
        instr({string}, {part})
        size(split({string}, '«, b a* b+ [.] (a|b)c? \\s»'))
        size(split({string}, '', {small}))
        locate({part}, {string})
        locate({part}, {string}, {small})
        position({part} IN {string})
        «year quarter month day dayofmonth dayofweek weekday dayofyear weekofyear hour minute second»({time})
        extract(«YEAR DOW DOY WEEK hour MONTH QTR MINUTE» FROM {time})
        date_part('DAY', {time})
        datepart('H', {time})
    """,
    "double": r"""
        ({double} «+ - * / %» {double})
        ({int} / {int})
        ({double} + {small})
        ({small} * {double})
        (-{double})
        «abs sqrt sign signum round»({double})
        sign({int})
        round({double}, {digits})
        CAST(«{string} {int} {time} {boolean}» AS DOUBLE)
        «greatest least coalesce nullif mod»({double}, {double})
        if({boolean}, {double}, {double})
        extract(SECOND FROM {time})
    """,
    "apart": r"""
        CAST({double} AS FLOAT)
        power({double}, {double})
        pow({small}, {double})
        «exp ln log10 log2»({double})
    """,
    "string": r"""
        «lower upper lcase ucase trim ltrim rtrim btrim reverse concat»({string})
        btrim({string}, {part})
        trim(«BOTH LEADING TRAILING» {part} FROM {string})
        trim({part} FROM {string})
        «trim ltrim rtrim»({part}, {string})
        «substring left right lpad rpad repeat»({string}, {small})
        «substring substr»({string}, {small}, {small})
        substring({string} FROM {small} FOR {small})
        «lpad rpad»({string}, {small}, {part})
        concat({string}, {string}, {part})
        ({string} || {string})
        replace({string}, {part}, {string})
        replace({string}, {part})
        split_part({string}, {part}, {nonzero})
        split({string}, '«, b a* [ab]»')[0]
        split({string}, '«, b b*»', {small})[0]
        element_at(split({string}, 'b', 2), -1)
        regexp_extract({string}, '(a|b)(c?)', «1 2»)
        regexp_extract({string}, '[a-z]+', 0)
        regexp_extract({string}, '(b+)')
        regexp_replace({string}, '[ab]', '<$0>')
        regexp_replace({string}, '(a)(b)', '$2$1')
        regexp_replace({string}, 'b', '\\$')
        regexp_replace({string}, '.', «'-' p1»)
        regexp_replace(CAST({int} AS STRING), '1*', '-')
        CAST(«{int} {boolean} {time}» AS STRING)
        «coalesce nullif greatest least»({string}, {part})
        if({boolean}, {string}, {part})
        CASE WHEN {boolean} THEN {string} ELSE {string} END
        CASE {part} WHEN 'a' THEN {string} WHEN 'b' THEN {part} END
    """,
    "time": r"""
        date_trunc('«YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND mon YYYY dd none»', {time})
        ({time} «+ -» INTERVAL 1 «DAY MONTH»)
        ({time} «+ -» INTERVAL «13 -25» MONTHS)
        ({time} «+ -» INTERVAL 90 MINUTES)
        ({time} + INTERVAL '2 days 3 hours')
        (INTERVAL 1 YEAR + {time})
        ({date} + INTERVAL 5 SECONDS)
        to_timestamp(«{time_text} {date}»)
        CAST(«{time_text} {small}» AS TIMESTAMP)
        timestamp_«seconds millis micros»({small})
        «from to»_utc_timestamp({time}, '«Europe/Berlin America/New_York UTC +02:00 Asia/Kolkata»')
        timestampadd(«YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND», {small}, {time})
        dateadd(HOUR, {small}, {time})
        «greatest least coalesce»({time}, {time})
        coalesce({time}, {date})
        if({boolean}, {time}, {time})
    """,
    "date": r"""
        «to_date last_day»({time})
        to_date({time text})
        «date_add dateadd add_months»({time}, {small})
        date_sub({date}, {small})
        CAST(«{time} {time_text}» AS DATE)
    """,
    "units": r"""
        timestampdiff(«YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND», {time}, {time})
        datediff(DAY, {time}, {time})
    """,
    "boolean": r"""
        ({int} «= <» {int})
        ({double} «= < <=>» {double})
        ({string} «= < <=>» {string})
        ({time} «= < <=>» {time})
        ({boolean} «= < AND OR» {boolean})
        ({small} «<> <= > >= <=>» {small})
        ({double} >= {small})
        (NOT {boolean})
        ({boolean} OR {boolean} OR {boolean})
        isnull({int})
        isnotnull({string})
        ({string} IS NULL)
        ({small} IN ({small}, {small}, NULL))
        ({string} IN ({part}, 'abc', {string}))
        ({double} NOT IN (0.5, 1.5))
        ({int} BETWEEN {small} AND {int})
        ({string} NOT BETWEEN {part} AND {string})
        ({time} BETWEEN {time} AND {time})
        ({string} «LIKE ILIKE» «'%a_' '_' '%ABC%' '%σ%' 'İ%'»)
        ({string} NOT LIKE 'x!_%' ESCAPE '!')
        ({string} LIKE ANY ('a%', '%c'))
        ({string} NOT LIKE ALL ('a%', NULL))
        ({string} RLIKE '^[a-c]+$')
        «regexp_like rlike»({string}, '[0-9]')
        «startswith endswith contains»({string}, {part})
        contains({part}, {string})
        ({int} IS DISTINCT FROM {int})
        ({string} IS NOT DISTINCT FROM {part})
        CAST(«{int} {string} {double}» AS BOOLEAN)
        coalesce({boolean}, {boolean})
        if({boolean}, {boolean}, {boolean})
        (({time} - {time}) > INTERVAL 1 DAY)
        (({time} - {time}) <= ({time} - {time}))
        ((({time} - {time}) / 2) < INTERVAL 3 HOURS)
        ((({time} - {time}) * {factor}) >= INTERVAL 5 MINUTES)
        (({date} - {date}) = INTERVAL 2 DAYS)
        (({time} - INTERVAL 2 HOURS) < {time})
        ({date} «<= =» {time})
        ({date} = {date})
    """,
}
# Formats of times, as they stand in a text.
READ = """yyyy-MM-dd|dd.MM.yyyy|d.M.yyyy|M/d/yy|yyyyMMdd|yyyyMMddHHmmss|yyMMdd|yyyy-MM-dd HH:mm:ss
yyyy-MM-dd\\'T\\'HH:mm:ss|yyyy-MM-dd\\'T\\'HH:mm:ss.SSSX|yyyy-MM-dd\\'T\\'HH:mm:ss[.SSSSSS][XXX]
dd/MMM/yyyy:HH:mm:ss Z|dd MMM yyyy|d MMMM yyyy|MMM d, yyyy h:mm a|hh:mm a|h a|HH:mm|yyyy|yyyy-MM|MM-dd|D yyyy
yyyyDDD|yyyy-MM-dd HH:mm:ss z|yyyy-MM-dd HH:mm VV|yyyy-MM-dd HHX|yyyy-MM-dd HH:mmxxx|yyyy-MM-dd HH:mm:ssXXXXX
yyyy-MM-dd HH:mmXX|kk:mm|K:mm a|HH a|yyyy-MM-dd [HH:mm]|H:m:s|ss.SSS|yyyyMMddHHmmssSSS|\\'on\\' d.M.y|yyyy yyyy
MM/dd/yyyy hh:mm:ss a|\\'\\'yy|LLL yyyy|yyyyyy|yyyy-MM-dd[\\'T\\'[HH[:mm]]]|dMyyyy|HHmm|HHmmss|a|mm:ss
yyyy-MM-dd HH:mm:ssZZZZZ|HHmmS|yyyy-MM-dd h:mm|SSSyyyy|yyyyMMddX"""
WRITTEN = """yyyy-MM-dd|dd.MM.yy|E|EEEE|MMM|MMMM|d|D|DDD|HH:mm:ss.SSS|h:mm a|K k|S|SSSSSSSSS|X|XXX|x|xxx|Z|ZZZZZ
z|zzzz|VV|y|yyy|yyyyyy|yyyyMMdd\\'T\\'HHmmss\\'Z\\'|[yyyy]-[MM]|LLLL|EEE, d MMM yyyy|\\'it\\'\\'s\\' H|M/d L"""
_FORMATS = {
    "time": ["to_timestamp({format text}, '" + f + "')" for f in READ.replace("\n", "|").split("|")],
    "date": ["to_date({format text}, '" + f + "')" for f in ("dd.MM.yyyy", "yyyyMMdd", "yyyy-MM-dd HHX")],
    "int": ["unix_timestamp({format text}, '" + f + "')" for f in ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HHX", "ss.SSS")],
    "string": ["date_format({time}, '" + f + "')" for f in WRITTEN.replace("\n", "|").split("|")],
}
FILLINGS = {
    "factor": ["2", "-3", "0.5"],
    "digits": ["0", "1", "2", "-1", "-2", "-20", "5", "400"],
    "nonzero": ["1", "2", "-1", "5"],
}
_CHOICE = re.compile("«([^»]*)»")


def _expand(text: str) -> list[str]:
    choice = _CHOICE.search(text)
    if choice is None:
        return [text.replace("{time_text}", "{time text}")]
    before, after = text[: choice.start()], text[choice.end() :]
    return [each for word in choice[1].split() for each in _expand(before + word + after)]


SIGNATURES = {
    kind: [each for line in lines.strip().splitlines() for each in _expand(line.strip())] + _FORMATS.get(kind, [])
    for kind, lines in _TEXTS.items()
}
