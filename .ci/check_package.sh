#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The packages serve on machines without a compiler: the .deb in a fresh Debian 12 (debootstrap; as root), the wheel in
# a venv of each Python from 3.9 on that is here. In each a program is recorded, from its start and attached to,
# reported, and read by the Python package; the programs of docs/first-hour.md are, too, and the answers are those of
# the page; then the package is removed, and leaves nothing.
#
# usage: check_package.sh DEB WHEEL

set -eu
tree=$(realpath "$(dirname "$0")/..")
deb=$(realpath "$1")
wheel=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=0

fail() {
    echo "check_package: FAILED; $*"
    exit 1
}

# What is tried in both: python3 and varve are those of PATH.
cat >"$work/try.sh" <<'SH2'
set -eu
cd "$1"
cat >kept.py <<'PY'
import sys, time
kept = []
def keep(number):
    kept.append(bytearray(1 << 20))
for number in range(30):
    keep(number)
print("ready", flush=True)
while len(sys.argv) > 1:
    kept.append(bytearray(1 << 20))
    del kept[-1]
    time.sleep(0.01)
PY
varve record -q -o run.db -- python3 kept.py
varve report run.db >report.txt
grep -q "health *nothing lost" report.txt
grep -q "keep  .*kept.py:4 .*30.0 MiB" report.txt
varve report --html page.html run.db
grep -q "</html>" page.html
python3 kept.py on >ready.txt &
until [ -s ready.txt ]; do sleep 0.1; done
varve attach --for 1 -o attached.db $! 2>attach.txt || { cat attach.txt; kill $!; exit 1; }
kill $!
varve query attached.db "SELECT count(*) > 10 FROM allocations WHERE size > 1048576" | grep -q 1
varve help --man >/dev/null
varve doctor >doctor.txt || true
grep -q "^ok  *preload " doctor.txt
varve export run.db --to parquet -o parquet 2>parquet.txt && [ -d parquet ] || grep -q "needs pyarrow" parquet.txt
python3 - <<'PY'
import varve
with varve.open("run.db") as trace:
    assert "nothing lost" in str(trace.health), trace.health
with varve.record("block.db") as recording:
    kept = bytearray(5 << 20)
assert recording.peak()["heap"] >> 20 == 5, recording.summary
with varve.zeros((2, 3), "f32") as storage:
    storage[0, 1] = 2
    assert storage.tolist() == [[0, 2, 0], [0, 0, 0]], storage.tolist()
PY
SH2

# python3.9, python3.10 and so on: of PATH, or of pyenv. Nothing: it is not here.
find_python() { # minor version
    for found in "python3.$1" "$HOME"/.pyenv/versions/"3.$1".*/bin/python3; do
        if "$found" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "$found"
            return 0
        fi
    done
}

try_wheel() { # minor version, python
    venv="$work/a venv of 3.$1"
    "$2" -m venv "$venv"
    find "$venv" | sort >"$work/before"
    "$venv/bin/pip" install --quiet --no-index "$wheel"
    mkdir "$work/3.$1"
    env -i HOME="$work" PATH="$venv/bin:/usr/bin:/bin" sh "$work/try.sh" "$work/3.$1" || fail "the wheel, by 3.$1"
    env -i HOME="$work" PATH="$venv/bin:/usr/bin:/bin" VARVE="$venv/bin/varve" \
        python3 "$tree/tests/conformance/test_first_hour.py" >"$work/log" 2>&1 || {
        tail -n 30 "$work/log"
        fail "docs/first-hour.md with the wheel, by 3.$1"
    }
    "$venv/bin/pip" uninstall --quiet --yes varve-memory
    find "$venv" -name __pycache__ -prune -o -print | sort | comm -13 "$work/before" - >"$work/left"
    [ ! -s "$work/left" ] || fail "pip uninstall of 3.$1 leaves $(cat "$work/left")"
    checked=$((checked + 1))
}

# What the page is tried with: there is no compiler where it is, so its C++ programs come with it.
copy_first_hour() { # folder
    mkdir -p "$1/docs" "$1/tests/conformance/pytorch" "$1/bin"
    cp "$tree/docs/first-hour.md" "$1/docs"
    cp "$tree/tests/recording.py" "$1/tests"
    cp "$tree/tests/conformance/test_first_hour.py" "$1/tests/conformance"
    cp "$tree"/tests/conformance/pytorch/resnet50_train_stacks.pickle.xz \
        "$tree"/tests/conformance/pytorch/synthetic_oom.pickle.xz "$1/tests/conformance/pytorch"
    (cd "$1/bin" && sed -n "/^cat >words.cc <<'CC'$/,/^g++ -g -O1 fewer.cc/p" "$tree/docs/first-hour.md" |
        sed '/^```/,/^```sh$/d' | bash -e) || fail "the programs of docs/first-hour.md"
    printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp "/tree/bin/$2" "$2"\n' >"$1/bin/g++"
    chmod +x "$1/bin/g++"
}

try_deb() {
    system=$work/system
    debootstrap --variant=minbase bookworm "$system" >"$work/log" 2>&1 || {
        tail -n 5 "$work/log"
        fail "debootstrap"
    }
    cp "$deb" "$system/varve.deb"
    cp "$work/try.sh" "$system/try.sh"
    mkdir "$system/tried"
    copy_first_hour "$system/tree"
    cat >"$system/run.sh" <<'SH3'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
mount -t proc proc /proc
apt-get install -y --no-install-recommends /varve.deb man-db >/log 2>&1 || { tail -n 5 /log; exit 1; }
! command -v cc && ! command -v gcc || exit 1
sh /try.sh /tried
PATH=/tree/bin:$PATH VARVE=$(command -v varve) python3 /tree/tests/conformance/test_first_hour.py >/log 2>&1 || {
    tail -n 30 /log
    exit 1
}
rm -r /tree
man -w varve >/dev/null
apt-get purge -y varve >/log 2>&1
rm -r /varve.deb /tried
! find / -xdev -name '*varve*' -not -path '/proc/*' -not -path '/var/log/*' | grep . || exit 1
SH3
    unshare --mount --pid --fork chroot "$system" sh /run.sh || fail "the .deb in a fresh Debian 12"
    checked=$((checked + 1))
}

for minor in 9 10 11 12 13; do
    python=$(find_python "$minor")
    if [ -n "$python" ]; then
        try_wheel "$minor" "$python"
    else
        echo "check_package: skipped: Python 3.$minor is not here"
    fi
done
if [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null 2>&1; then
    try_deb
else
    echo "check_package: skipped: the .deb wants root and debootstrap for a clean system"
fi
echo "check_package: ok; $checked installations of $(basename "$deb"), $(basename "$wheel")"
