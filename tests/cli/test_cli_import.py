"""`amcast import` and `amcast schema`, as a stranger uses them who holds a trace of another system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amcast.pipeline.foreign import found, memory
from amcast.trace import TABLES, limits, read_run
from amcast.trace.latency import latencies_us
from tests.cli.cli_harness import Cli, Outcome
from tests.foreign_traces import GROUP_OPTIONS, ForeignTrace, write_csv

PAIR = ("--group", "g=a,b")


def lines_of(outcome: Outcome) -> list[str]:
    """The errors, without the word for them."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    *told, last = outcome.err.splitlines()
    assert last == "nothing was written"
    return [line.removeprefix("error: ") for line in told]


def verdicts(cli: Cli, run: str) -> dict[str, str]:
    found: dict[str, str] = cli("check", run, "--json").json["properties"]
    return found


# ---------------------------------------------------------------------------------------- from the first try


def test_a_trace_of_20000_messages_passes_at_the_first_try(cli: Cli) -> None:
    ForeignTrace(20_000).write(Path("trace"))
    made = cli("import", "trace", *GROUP_OPTIONS, "--complete", "--claims", "fifo", "--out", "run", "--json")
    assert made.code == 0, made
    assert made.json["rows"]["multicasts"] == 20_000
    assert made.json["unproven"] == {}
    checked = cli("check", "run", "--json")
    assert checked.code == 0, checked
    assert set(checked.json["properties"].values()) == {"pass"}
    assert "fifo" in checked.json["properties"]


def test_one_swapped_delivery_fails_with_their_names(cli: Cli) -> None:
    trace = ForeignTrace(20_000)
    first, second = trace.neighbours("orders", "stock")
    trace.swap(["db-4"], first, second)
    trace.write(Path("trace"))
    assert cli("import", "trace", *GROUP_OPTIONS, "--complete", "--out", "run").code == 0
    checked = cli("check", "run", "--json")
    assert checked.code == 1
    assert checked.json["properties"]["prefix"] == "fail"
    told = {found["property"]: found["explanation"] for found in checked.json["violations"]}
    assert f"db-4 delivered {second} before {first}" in told["prefix"]
    assert "db-4 delivered" in told["replicas"]
    shown = cli("check", "run").out
    assert f"[{first} at" in shown, "the diagram has their names too"


def test_groups_that_disagree_are_found_in_deliveries_alone(cli: Cli) -> None:
    trace = ForeignTrace(500)
    first, second = trace.neighbours("orders", "stock")
    trace.swap(["db-3", "db-4", "db-5"], first, second)
    trace.write(Path("trace"))
    assert cli("import", "trace/deliveries.csv", *GROUP_OPTIONS, "--complete", "--out", "run").code == 0
    checked = cli("check", "run", "--json")
    assert checked.code == 1
    assert checked.json["properties"] == {
        "positions": "pass",
        "integrity": "unknown",
        "validity": "unknown",
        "agreement": "unknown",
        "replicas": "pass",
        "prefix": "fail",
        "acyclic": "fail",
    }


# ---------------------------------------------------------------------------- no better than the evidence


def test_deliveries_alone_prove_little(cli: Cli) -> None:
    ForeignTrace(200).write(Path("trace"))
    made = cli("import", "trace/deliveries.csv", *GROUP_OPTIONS, "--complete", "--out", "run")
    assert (
        "integrity, validity, agreement, prefix, acyclic can't pass: the trace has no multicasts"
        in made.out.replace("\n", " ")
    )
    checked = cli("check", "run", "--json")
    assert checked.code == 3
    passed = {name for name, verdict in checked.json["properties"].items() if verdict == "pass"}
    assert passed == {"positions", "replicas"}
    assert "no multicasts" in checked.json["runs"][0]["reasons"]["prefix"]


def test_one_who_lacks_what_its_group_delivered_fails_even_so(cli: Cli) -> None:
    write_csv(Path("log.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "x")])
    cli("import", "log.csv", *PAIR, "--complete", "--out", "run")
    checked = cli("check", "run", "--json")
    assert checked.code == 1
    assert checked.json["properties"]["agreement"] == "fail"
    assert checked.json["properties"]["validity"] == "unknown", "who sent y may have crashed"
    assert "a delivered y, but b never did" in checked.out


def test_inferred_processes_prove_no_agreement(cli: Cli) -> None:
    ForeignTrace(100).write(Path("trace"))
    made = cli("import", "trace", "--complete", "--out", "run", "--json").json
    assert set(made["unproven"]) == {"validity", "agreement", "replicas"}
    assert any(words.startswith("groups: billing (3), orders (3), stock (3)") for words in made["words"])
    checked = cli("check", "run", "--json")
    assert checked.code == 3
    assert checked.json["properties"]["prefix"] == "pass"
    assert "--group" in checked.json["runs"][0]["reasons"]["agreement"]


def test_a_run_that_is_not_declared_complete_is_not(cli: Cli) -> None:
    ForeignTrace(100).write(Path("trace"))
    made = cli("import", "trace", *GROUP_OPTIONS, "--out", "run")
    assert "say --complete" in made.out.replace("\n", " ")
    assert verdicts(cli, "run") | {"validity": "", "agreement": ""} == {
        "positions": "pass",
        "integrity": "pass",
        "validity": "",
        "agreement": "",
        "replicas": "pass",
        "prefix": "pass",
        "acyclic": "pass",
    }
    assert verdicts(cli, "run")["validity"] == verdicts(cli, "run")["agreement"] == "unknown"


def test_a_lost_message_of_an_unknown_sender_leaves_validity_open(cli: Cli) -> None:
    write_csv(Path("multicasts.csv"), ("msg", "dst"), [("x", "g"), ("y", "g")])
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("b", 0, "x")])
    cli("import", "multicasts.csv", "deliveries.csv", *PAIR, "--complete", "--claims", "fifo", "--out", "run")
    checked = cli("check", "run", "--json")
    assert checked.code == 3
    assert {name for name, verdict in checked.json["properties"].items() if verdict == "unknown"} == {
        "validity",
        "fifo",
    }
    assert "does not say who multicast" in checked.json["runs"][0]["reasons"]["validity"]


def test_senders_need_not_be_known_if_nothing_is_lost(cli: Cli) -> None:
    write_csv(Path("multicasts.csv"), ("msg", "dst"), [("x", "g")])
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("b", 0, "x")])
    cli("import", "multicasts.csv", "deliveries.csv", *PAIR, "--complete", "--out", "run")
    assert set(verdicts(cli, "run").values()) == {"pass"}


def test_a_lost_message_of_a_known_sender_fails(cli: Cli) -> None:
    write_csv(Path("multicasts.csv"), ("msg", "sender", "dst"), [("x", "eve", "g"), ("y", "eve", "g")])
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("b", 0, "x")])
    cli("import", "multicasts.csv", "deliveries.csv", *PAIR, "--complete", "--out", "run")
    checked = cli("check", "run", "--json")
    assert checked.code == 1
    assert "eve multicast y to g, but a and b never delivered it" in checked.out


def test_who_crashed_owes_nothing(cli: Cli) -> None:
    write_csv(Path("t/multicasts.csv"), ("msg", "sender", "dst"), [("x", "eve", "g"), ("y", "eve", "g")])
    write_csv(Path("t/deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "x")])
    write_csv(Path("t/faults.csv"), ("process", "what"), [("b", "crash")])
    made = cli("import", "t", *PAIR, "--complete", "--out", "run", "--json").json
    assert "correct: all 2 processes but b, which crashed" in made["words"]
    assert set(verdicts(cli, "run").values()) == {"pass"}


def test_without_positions_the_order_of_rows_counts_and_gaps_are_not_seen(cli: Cli) -> None:
    rows = [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")]
    write_csv(Path("deliveries.csv"), ("process", "msg"), rows)
    cli("import", "deliveries.csv", *PAIR, "--out", "run")
    found = read_run("run").deliveries
    assert found.pos.tolist() == [0, 1, 0, 1]
    assert verdicts(cli, "run")["positions"] == "unknown"
    assert verdicts(cli, "run")["replicas"] == "pass"


def test_a_wire_that_is_about_nothing_proves_nothing_genuine(cli: Cli) -> None:
    ForeignTrace(50).write(Path("t"))
    write_csv(Path("t/wire.csv"), ("src", "dst"), [("client-a", "db-1")])
    cli("import", "t", *GROUP_OPTIONS, "--complete", "--claims", "genuine", "--out", "run")
    checked = cli("check", "run", "--json")
    assert checked.code == 3
    assert checked.json["runs"][0]["reasons"] == {"genuine": "no wire message says which message it is about"}


def test_positions_that_count_from_one(cli: Cli) -> None:
    rows = [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"), ("b", 2, "y")]
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), rows)
    made = cli("import", "deliveries.csv", *PAIR, "--out", "as-they-are", "--json").json
    assert any("say --first-position 1" in words for words in made["words"])
    assert verdicts(cli, "as-they-are")["positions"] == "fail"
    cli("import", "deliveries.csv", *PAIR, "--first-position", 1, "--out", "run")
    assert verdicts(cli, "run")["positions"] == "pass"
    told = lines_of(cli("import", "deliveries.csv", *PAIR, "--first-position", 2, "--out", "never"))
    assert told[0] == "deliveries.csv, line 2, column pos: 1 is below the first position, 2"
    assert len(told) == 2


def test_names_that_can_not_be_read_leave_the_verdict_as_it_is(cli: Cli) -> None:
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "y")])
    cli("import", "deliveries.csv", *PAIR, "--out", "run")
    before = cli("check", "run", "--json")
    assert "b delivered y at position 0, where a delivered x" in before.out
    for file in Path("run/names/messages").iterdir():
        file.write_bytes(b"PAR1 and no more")
    after = cli("check", "run", "--json")
    assert after.json["properties"] == before.json["properties"]
    assert "b delivered m1 at position 0, where a delivered m0" in after.out


def test_what_is_declared_missing_lets_nothing_pass(cli: Cli) -> None:
    ForeignTrace(50).write(Path("trace"))
    cli("import", "trace", *GROUP_OPTIONS, "--complete", "--missing", "no log of db-9", "--out", "run")
    checked = cli("check", "run", "--json")
    assert set(checked.json["properties"].values()) == {"unknown"}
    assert "no log of db-9" in checked.out


# ------------------------------------------------------------------------------------------- liberties


def test_json_lines_names_of_columns_units_and_a_file_about_the_run(cli: Cli) -> None:
    sent = [{"tx": "x", "sender": "eve", "client_seq": 0, "dst": ["a b"], "time": 1.5, "colour": "red"}]
    logs = [{"tx": "x", "process": name, "pos": 0, "time": 2.0000019, "kind": "final"} for name in ("db 1", "db 2")]
    Path("t").mkdir()
    Path("t/multicasts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sent))
    Path("t/deliveries.jsonl").write_text("\n".join(map(json.dumps, logs)))
    about = {"groups": {"a b": ["db 1", "db 2"]}, "complete": True, "claims": ["fifo"], "protocol": "theirs"}
    Path("t/run.json").write_text(json.dumps(about))
    made = cli("import", "t", "--column", "msg=tx", "--time-unit", "s", "--out", "run", "--json")
    assert made.code == 0, made
    assert "columns that are ignored: 'colour'" in made.json["words"]
    run = read_run("run")
    assert run.info.protocol == "theirs"
    assert run.multicasts.t_us.tolist() == [1_500_000]
    assert run.deliveries.t_us.tolist() == [2_000_001, 2_000_001]
    assert set(verdicts(cli, "run").values()) == {"pass"}


def test_integers_stay_what_they_are(cli: Cli) -> None:
    big = 2**53 + 1
    write_csv(Path("multicasts.csv"), ("msg", "sender", "client_seq", "dst"), [(big, 900, 0, 7), (5, 900, 1, 7)])
    rows = [(101, 7, 0, big), (101, 7, 1, 5), (102, 7, 0, big), (102, 7, 1, big)]
    write_csv(Path("deliveries.csv"), ("process", "grp", "pos", "msg"), rows)
    cli("import", "multicasts.csv", "deliveries.csv", "--out", "run")
    run = read_run("run")
    assert run.deliveries.msg.tolist() == [big, 5, big, big]
    assert run.deliveries.process.tolist() == [101, 101, 102, 102]
    assert run.multicasts.sender.tolist() == [900, 900]
    assert not Path("run/names").exists()
    assert f"p102 delivered m{big} 2 times" in cli("check", "run").out.replace("\n", " ")


def test_other_tables_and_separators(cli: Cli) -> None:
    Path("t").mkdir()
    bom = b"\xef\xbb\xbf"
    Path("t/deliveries-1.csv").write_bytes(bom + b'process;pos;msg\r\n"g1.p0";0;x\r\n\r\ng2.p0; 0 ;x\r\n')
    Path("t/multicasts.tsv").write_bytes(b"msg\tsender\tdst\tbytes\nx\teve\tg1,g2\t7\n")
    Path("t/wire.csv").write_bytes(b"src,dst,kind,msg\neve,g1.p0,START,x\ng1.p0,g2.p0,HELLO,\n")
    made = cli("import", "t", "--claims", "genuine", "--complete", "--out", "run")
    assert made.code == 0, made
    run = read_run("run")
    assert run.wire.kinds == ("START", "HELLO")
    assert len(run.info.groups) == 2
    assert verdicts(cli, "run")["genuine"] == "pass"


def test_equal_files_give_equal_runs(cli: Cli) -> None:
    ForeignTrace(300).write(Path("trace"))
    for run in ("one", "two"):
        cli("import", "trace", "--run-id", "same", "--out", run)
    files = sorted(path.relative_to("one") for path in Path("one").rglob("*") if path.is_file())
    assert len(files) > 10
    for file in files:
        assert ("one" / file).read_bytes() == ("two" / file).read_bytes(), file


# ---------------------------------------------------------------------------------------- wrong input


def test_all_errors_are_told_at_once_and_nothing_is_written(cli: Cli) -> None:
    Path("deliveries.csv").write_text(
        f'process,pos,msg,ts\na,0,x,\na,-1,y,\na,1.0,y,nan\na,2\na,{2**63},z,\n"a,3,z,\n,4,z,\n'
    )
    Path("multicasts.jsonl").write_text(
        '{"msg": "x", "dst": "g"}\n{"msg": true, "dst": "g"}\n[1]\n{"msg": "y", "dst": []}\n'
    )
    told = lines_of(cli("import", "deliveries.csv", "multicasts.jsonl", *PAIR, "--out", "run"))
    assert told == [
        "deliveries.csv, line 3, column pos: '-1' is negative",
        "deliveries.csv, line 4, column pos: '1.0' is not an integer",
        "deliveries.csv, line 4, column ts: 'nan' is not an integer",
        "deliveries.csv, line 5: it has 2 values, and the first line names 4 columns",
        "deliveries.csv, line 6, column pos: '9223372036854775808' is too large for 64 bits",
        "deliveries.csv, line 7: a quote is not closed in its line: no value may have a line end in it",
        "deliveries.csv, line 8, column process: it is blank",
        "multicasts.jsonl, line 2, column msg: 'true' is neither a text nor a number",
        "multicasts.jsonl, line 3: it is not a JSON object: Expected `object`, got `array`",
        "multicasts.jsonl, line 4, column dst: '[]' names no group",
    ]
    assert not Path("run").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["deliveries.csv", "multicasts.jsonl"]


def test_errors_are_counted_beyond_some(cli: Cli) -> None:
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", "x", "m")] * 1_000)
    told = lines_of(cli("import", "deliveries.csv", *PAIR, "--out", "run"))
    assert len(told) == 21
    assert told[-1] == "and 980 more"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "deliveries.csv: it is empty"),
        (b"\n\n \n", "deliveries.csv: it is empty"),
        (b"process,pos,msg\n", "nothing is delivered"),
        (b"\xff\xfep\0r\0", "deliveries.csv: it is UTF-16: save it as UTF-8"),
        (b"process,msg,msg\na,x,y\n", "'msg' is the name of 2 columns"),
        (b"process,msg,message\na,x,y\n", "msg and message are two names of one column"),
        (b"process,pos\na,0\n", "column msg: it is missing; the file has process, pos"),
        (b"process,msg\na,\xe9\n", "line 2: byte 3 is not UTF-8"),
        (b"process,msg\na,x\0y\n", "line 2: it has a null character"),
        (b"process,msg\ra,x\rb,y\r", "the first line is not names of columns"),
        (b"process,msg\na,x\rb,y\n", "line 2: it has a carriage return inside"),
        (b"process,msg\na," + b"x" * 600 + b"\n", "is longer than 500 bytes"),
        (b"process,msg\na,x\nb," + b"x" * (2 << 20) + b"\na,y\n", "line 3: it is longer than 1,048,576 bytes"),
        (b"x" * (2 << 20), "line 1: it is longer than 1,048,576 bytes"),
        (b"process,msg\ndb7,x\n", "nothing says which group process db7 is in"),
        (b",".join(b"c%d" % n for n in range(1_001)) + b"\n", "1,001 columns are more than 1,000"),
        (b"process,grp,msg\na,g,x\na,h,y\n", "process a delivers for g and for h"),
        (b"process,grp,msg,kind\na,g,x,3\n", "column kind: '3' is none of 0, 1, final, optimistic"),
        (b"process,grp,msg,t_us\na,g,x,1.5\n", "'1.5' is not an integer: say --time-unit"),
        (b"process,grp,msg,t_us\na,g,x,\n", "line 2, column t_us: it is blank"),
        (b"process,grp,msg,ts\na,g,x,-9223372036854775808\n", "column ts: '-9223372036854775808' is too large"),
    ],
)
def test_strange_files_are_refused_in_one_line(cli: Cli, content: bytes, what: str) -> None:
    Path("deliveries.csv").write_bytes(content)
    (told,) = lines_of(cli("import", "deliveries.csv", "--out", "run"))
    assert what in told
    assert len(told) < 300
    assert not Path("run").exists()


def test_what_does_not_fit_together_is_refused(cli: Cli) -> None:
    write_csv(Path("multicasts.csv"), ("msg", "dst"), [("x", "g"), ("y", "h;g")])
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("c", 0, "x")])
    told = lines_of(cli("import", "multicasts.csv", "deliveries.csv", *PAIR, "--out", "run"))
    assert told == [
        "process c delivers, and is in none of the declared groups: add it to one",
        "a message is addressed to h, which is no declared group",
    ]
    twice = ("--group", "g=a,b", "--group", "h=c,a")
    (told_of_a,) = lines_of(cli("import", "multicasts.csv", "deliveries.csv", *twice, "--out", "run"))
    assert told_of_a == "process a is declared in g and in h: groups are disjoint"


def test_wrong_usage_is_told_in_one_line(cli: Cli) -> None:
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x")])
    Path("about.json").write_text('{"grups": {}}')
    assert "--out" in cli.refuses("import", "deliveries.csv")
    assert "name the files" in cli.refuses("import", "--out", "r")
    Path("folder.csv").mkdir()
    assert lines_of(cli("import", "folder.csv", "--out", "r")) == [
        "folder.csv: no file in this folder is .csv or .jsonl"
    ]
    assert lines_of(cli("import", "--table", "deliveries=folder.csv", "--out", "r")) == ["folder.csv: it is not a file"]
    assert "choose from us, ns, ms, s, iso" in cli.refuses("import", "deliveries.csv", "--time-unit", "h", "--out", "r")
    assert "no property is called order" in cli.refuses("import", "deliveries.csv", "--claims", "order", "--out", "r")
    assert "NAME=PROCESS" in cli.refuses("import", "deliveries.csv", "--group", "g", "--out", "r")
    assert "no table is called logs" in cli.refuses("import", "--table", "logs=deliveries.csv", "--out", "r")
    assert "no column is called tx" in cli.refuses("import", "deliveries.csv", "--column", "tx=msg", "--out", "r")
    assert "grups" in cli.refuses("import", "deliveries.csv", "--info", "about.json", "--out", "r")
    assert lines_of(cli("import", "nothing.csv", "--out", "r")) == ["nothing.csv: there is no such file or folder"]
    assert "--table deliveries=a.csv" in lines_of(cli("import", "a.csv", "b.csv", "--out", "r"))[0]
    assert lines_of(cli("import", "about.json", "--out", "r")) == [
        "about.json: only .csv, .tsv, .jsonl, .ndjson can be imported"
    ]


def test_a_column_that_is_taken_for_another_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "NAMES_MAX", 100)
    write_csv(Path("deliveries.csv"), ("process", "grp", "msg"), [(f"tx-{n}", "g", "a") for n in range(200)])
    (told,) = lines_of(cli("import", "deliveries.csv", "--out", "run"))
    assert told == (
        "deliveries.csv: there are more than 100 groups, processes and clients: is a column taken for another?"
    )


def test_more_rows_than_memory_holds_are_for_spark(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ForeignTrace(100).write(Path("trace"))
    monkeypatch.setattr(limits, "ROWS_MAX", 200)
    assert "more than 200 rows, too many for memory: use --engine spark" in cli.refuses(
        "import", "trace", "--out", "run"
    )
    monkeypatch.setattr(memory, "BYTES_MAX", 1_000)
    assert "more than 1,000 bytes" in cli.refuses("import", "trace", "--out", "run")
    assert not Path("run").exists()


def test_names_from_anywhere_stay_in_their_line_and_column(cli: Cli) -> None:
    long = "eu-west/orders/replicas/db-7"
    rows = [{"process": f"{long}\n\x1b[31m", "pos": 0, "msg": "x\ty"}, {"process": "b", "pos": 0, "msg": "z"}]
    Path("deliveries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("about.json").write_text(json.dumps({"groups": {"g": [rows[0]["process"], "b"]}}))
    cli("import", "deliveries.jsonl", "--info", "about.json", "--out", "run")
    shown = cli("check", "run").out
    assert "\x1b" not in shown
    assert "[x\ufffdy at 0]!" in shown
    assert "~" in shown, "the head of a column has the end of the name"
    assert max(map(len, shown.splitlines())) <= 80


def test_nothing_is_overwritten(cli: Cli) -> None:
    write_csv(Path("deliveries.csv"), ("process", "pos", "msg"), [("a", 0, "x"), ("b", 0, "x")])
    assert cli("import", "deliveries.csv", *PAIR, "--out", "run").code == 0
    before = Path("run/run.json").read_bytes()
    assert "run is not empty" in cli.refuses("import", "deliveries.csv", *PAIR, "--out", "run")
    assert Path("run/run.json").read_bytes() == before


def test_answers_are_imported_with_their_messages(cli: Cli) -> None:
    write_csv(Path("multicasts.csv"), ("msg", "dst", "time"), [("x", "g", 10), ("y", "g", 20)])
    rows = [(process, "x", 30) for process in "ab"] + [(process, "y", 40) for process in "ab"]
    write_csv(Path("deliveries.csv"), ("process", "msg", "time"), rows)
    write_csv(Path("answers.csv"), ("message", "time"), [("y", 70), ("x", 50)])
    made = cli("import", ".", *PAIR, "--complete", "--out", "run", "--json")
    assert (made.code, made.json["rows"]["answers"]) == (0, 2)
    run = read_run("run")
    assert (run.answers.msg.tolist(), run.answers.t_us.tolist()) == ([1, 0], [70, 50])
    assert latencies_us(run)["client"].tolist() == [40, 50]


# ---------------------------------------------------------------------------------------------- schema


def test_the_schema_is_the_one_that_readers_want(cli: Cli) -> None:
    document = cli("schema", "--json").json
    for name, schema in TABLES.items():
        columns = document["tables"][name]["columns"]
        assert [column["name"] for column in columns] == schema.names
        assert [column["nullable"] for column in columns] == [column.nullable for column in schema.columns]
    shown = cli("schema").out
    for name in (*TABLES, *document["properties"], *document["run.json"]["fields"]):
        assert name in shown
    assert "grp" in cli("schema", "deliveries").out
    assert "client_seq" not in cli("schema", "deliveries").out
    assert "no table is called logs" in cli.refuses("schema", "logs")


# --------------------------------------------------------------------------------------------------- operations

HEADER = ("client", "invoked", "returned", "operation", "object", "arguments", "result")


def test_operations_alone_are_imported_and_judged_with_their_names(cli: Cli) -> None:
    rows = [("alice", 10, 20, "put", "k 1", "red", ""), ("bob", 30, 40, "get", "k 1", "", "blue")]
    write_csv(Path("operations.csv"), HEADER, [(*row[:4], json.dumps([row[4]]), *row[5:]) for row in rows])
    made = cli("import", "operations.csv", "--out", "run", "--json")
    assert made.code == 0, made
    assert (made.json["rows"]["operations"], made.json["unproven"]) == (2, {})
    checked = cli("check", "run", "--json")
    assert (checked.code, checked.json["properties"]) == (1, {"linearizability": "fail"})
    (violation,) = checked.json["violations"]
    told = 'bob read k 1="blue" (from 0.030 ms to 0.040 ms), although nobody wrote "blue" to k 1'
    assert violation["explanation"] == told
    assert [each["name"] for each in violation["operations"]] == ["bob"]
    assert cli("check", "run", "--diagram", "bars.svg").code == 1
    assert "bob" in Path("bars.svg").read_text()


def test_values_of_operations_are_json_or_words(cli: Cli) -> None:
    lines = [
        {"client": 1, "invoked": 1, "returned": 2, "operation": "append", "objects": ["l"], "arguments": [1.0]},
        {"client": 1, "invoked": 3, "returned": 4, "operation": "append", "objects": "l", "arguments": "1"},
        {"client": 1, "invoked": 5, "returned": 6, "operation": "items", "objects": "l", "result": [1, "1"]},
        {"client": 1, "invoked": 5, "returned": None, "operation": "get", "objects": "k", "result": None},
    ]
    Path("operations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cli("import", "operations.jsonl", "--out", "run").code == 0
    operations = read_run("run").operations
    words = operations.arguments.words
    assert [words[code] for code in operations.arguments.codes] == ["[1]", '["1"]', "[]", "[]"]
    assert verdicts(cli, "run") == {"linearizability": "pass"}


def test_all_wrong_operations_are_told_with_their_lines(cli: Cli) -> None:
    rows = [
        ("a", 1, 2, "write", "x", "[1", ""),
        ("a", 1, "soon", "write", "x", "1", ""),
        ("a", 5, 2, "write", "x", "1", ""),
        ("a", 1, 2, "flip", "x", "", ""),
        ("a", 1, 2, "contains", "s", "1", "maybe"),
        ("", 1, 2, "read", "x", "", "1"),
        ("a", 1, 2, "read", "", "", "1"),
    ]
    write_csv(Path("operations.csv"), HEADER, rows)
    told = lines_of(cli("import", "operations.csv", "--out", "run"))
    assert [line.partition(": ")[0] for line in told] == [
        "operations.csv, line 2, column arguments",
        "operations.csv, line 3, column returned",
        "operations.csv, line 4, column returned",
        "operations.csv, line 5, column operation",
        "operations.csv, line 6, column result",
        "operations.csv, line 7, column client",
        "operations.csv, line 8, column object",
    ]
    assert "'[1' is not JSON" in told[0]
    assert "2 is before it was invoked, at 5" in told[2]


def test_groups_and_no_deliveries_do_not_go_together(cli: Cli) -> None:
    write_csv(Path("operations.csv"), HEADER, [("a", 1, 2, "read", "x", "", "1")])
    (told,) = lines_of(cli("import", "operations.csv", *PAIR, "--out", "run"))
    assert "groups are declared, and nothing is delivered" in told
