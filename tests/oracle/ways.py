"""The ways to run one command: at once, killed and resumed, or in partitions. Each writes the same bytes."""

import re
import shutil
import signal
import subprocess
import time

EXCLUDING = {"--limit", "--where", "--from", "--to"}


class Wrong(Exception):
    """The program failed, or did what it must not."""


def call(command, content=None):
    """Runs the command. Decoders and encoders may need more than a small memory: what the program asks for is enough."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, input=content, check=False)
    enough = re.search(rb"--memory (\d+) is enough", done.stderr)
    if enough and "-m" in command:
        command[command.index("-m") + 1] = enough[1].decode()
        done = subprocess.run(command, capture_output=True, input=content, check=False)
    return done


def must(command, content=None):
    done = call(command, content)
    if done.returncode != 0:
        raise Wrong(f"exit code {done.returncode}: {done.stderr.decode()}\n  {' '.join(map(str, command))}")
    return done.stdout


def whole(program, case):
    return [program, *case.words, *case.means, "--backend", "cpu", "-q", "-o", case.output, *case.paths]


def at_once(program, case, _):
    return must(whole(program, case), case.input)


def killed(program, case, rng):
    """Kills the command at random moments, then lets it resume, where it can, or begin again."""
    command = whole(program, case)
    resumable = call([*command, "--resume", "--explain"], case.input).returncode == 0
    command.append("--resume" if resumable else "--force")
    command = [str(word) for word in command]
    for _ in range(rng.randint(1, 3)):
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            time.sleep(rng.uniform(0.001, 0.03))
            process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
    if case.output.exists():  # it was faster
        if case.parts:
            shutil.rmtree(case.output)
        else:
            case.output.unlink()
    return must(command)


def write_parts(program, plan, verb, count, means, rng):
    for number in rng.sample(range(count), count):
        must([program, verb, "--plan", plan, "--partition", number, *means, "--backend", "cpu", "-q"])


def planned(program, case, rng):
    """Cuts the command into partitions, writes them in any order, and concatenates them."""
    verb, *words = case.words
    count, plan = rng.choice([1, 2, 3, 8]), case.folder / "plan.json"
    if verb == "sort":
        runs, pieces = case.folder / "sort.json", rng.choice([1, 2, 5])
        must([program, "plan", "sort", *words, "--partitions", pieces, "-o", runs, *case.paths])
        write_parts(program, runs, "sort", pieces, case.means, rng)
        must([program, "finish", runs, *rng.choice([[], ["--read-runs"]])])
        must([program, "plan", "merge", "--runs-of", runs, "--partitions", count, "-o", plan])
    else:
        must([program, "plan", verb, *words, "--partitions", count, "-o", plan, *case.paths])
    write_parts(program, plan, "merge", count, [word for word in case.means if word not in case.spill], rng)
    must([program, "finish", plan, "--concatenate", case.output, *rng.choice([[], ["--read-runs"]])])
    for rest in case.folder.glob("*.parts"):
        shutil.rmtree(rest)
    for rest in case.folder.glob("*.json"):
        rest.unlink()
    return b""


def ways_of(case):
    """Returns the ways in which the case can be run."""
    ways = [at_once]
    if case.input is None and case.output != "-":
        ways.append(killed)
        if not case.streams and not case.parts and "--limit" not in case.words:
            ways.append(planned)
    return ways


def must_check(program, case):
    """Lets the program check the output, and count its records."""
    files = sorted(case.output.iterdir()) if case.parts else [case.output]
    header = ["--header=first" if word == "--header" else word for word in case.form.options]
    printed = must([program, "check", "--checksum", "-q", *header, *files])
    records = printed.split(b"\n")[-2].split()[0] if printed else b"none"
    if records != str(case.records).encode():
        raise Wrong(f"check counts {records.decode()} records, not {case.records}")


def must_refuse(program, case, old):
    """Runs a case whose runs are damaged: it must fail, and leave `old`, its output until now, as it is."""
    done = call([*whole(program, case), "--force"], case.input)
    if done.returncode == 0:
        raise Wrong("a damaged run is merged")
    if done.returncode not in (1, 2):
        raise Wrong(f"exit code {done.returncode}: {done.stderr.decode()}")
    if case.written() != old:
        raise Wrong("the output of before is not left as it was")
