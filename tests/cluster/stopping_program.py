"""Stands in for the program and stops the first attempt at some tasks, so that a test finds them running.

A merge of a partition is stopped, by SIGSTOP, when it has written some of its part; a sort before it begins. A merge
that ends before is fine: the test then disturbs a task that has ended.
"""

import pathlib
import time

DEADLINE_SECONDS = 300  # much more than any step takes
SCRIPT = """#!/bin/bash
# Marks each stopped task by a file, so that its next attempt is not stopped.
plan= task=$1 output=
for ((i = 1; i < $#; i++)); do
  next=$((i + 1))
  case ${{!i}} in
    --plan) plan=${{!next}} ;;
    --partition) task=${{!next}} ;;
    -o) output=${{!next}} ;;
  esac
done
[[ $task != auto ]] || task=$SLURM_ARRAY_TASK_ID
[[ $task != sort ]] || task=${{output##*/}}
[[ $1 != merge || -z $plan ]] || set -- "$@" {options} --stats "{marks}/stats-$task"
if [[ " {tasks} " == *" $task "* && ! -e "{marks}/stopped-$task" ]]; then
  if [[ -z $plan ]]; then
    touch "{marks}/stopped-$task"
    kill -STOP $$
  else
    name=$(printf .part-%05d "$task")
    (
      while kill -0 $$ && [[ -z $(find "${{plan%.json}}.parts/$name".* -size +400k) ]]; do :; done
      kill -STOP $$
      touch "{marks}/stopped-$task"
    ) > /dev/null 2>&1 &  # holds no pipe, whose end the caller may wait for
  fi
fi
exec "{program}" "$@"
"""


def write_stopping_program(path, program, marks, tasks, options=""):
    """Writes the script. `tasks` are numbers of partitions, or names of files that a sort writes; `marks` is a folder for
    the marks, and for a file stats-N with the statistics of each partition. `options` are added to merges of partitions;
    little memory and one thread make them slow enough to be stopped."""
    path.write_text(SCRIPT.format(program=program, marks=marks, tasks=" ".join(map(str, tasks)), options=options))
    path.chmod(0o755)


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {DEADLINE_SECONDS} s for {what}")
        time.sleep(0.05)


def wait_until_stopped(marks, task):
    wait_until(pathlib.Path(marks, f"stopped-{task}").exists, f"task {task} to stop")
