#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds programs that nobody here wrote from Debian's source packages, each as one static file, into a folder:
# lua (5.4; by glibc and by musl), sqlite3, zstd, xz (threads), fasttree (OpenMP), gofmt (of the Go that is installed), and
# a copy of busybox. They run unmodified on the compute node kernel and on Linux.
#
#   images/programs.sh FOLDER [NAME…]     only the programs with these names (default: all)
#
# Needs dpkg-dev, a C compiler, musl-gcc, go, busybox, and tclsh (SQLite's sources are put together with it).
#
# apt checks the sources against the archive's signed index, which is fetched once a day. A program is built again if the archive
# has another version of its source package or this script has changed: FOLDER/.NAME.from says what a program was made from.
# Sources and programs are made in a temporary folder and renamed when they are whole, so that an interrupted run leaves nothing
# that the next one takes.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
out=$(realpath -m "${1:?usage: images/programs.sh FOLDER [NAME…]}")
shift
names=("$@")
mkdir -p "$out"
work=${XDG_CACHE_HOME:-$HOME/.cache}/colony/sources
mkdir -p "$work"
exec 9> "$work/lock"
flock 9
# the lock is held: what a killed run has left is nobody's
rm -rf "$work"/temporary.*
temporary=$(mktemp -d "$work/temporary.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
for tool in busybox dpkg-source gcc go musl-gcc strip tclsh; do
  command -v "$tool" > /dev/null || die "$tool is missing: run ./x setup, which installs the packages of packages.txt"
done

# an apt of our own: this system's archives, their source packages, its keys; nothing of the system is changed
apt_folder=$work/apt
our_apt() {
  apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt_folder/sources.d" \
    -o Dir::State::Lists="$apt_folder/lists" -o Dir::Cache="$apt_folder/cache" -o APT::Sandbox::User=root "$@"
}
our_apt_cache() {
  apt-cache -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt_folder/sources.d" \
    -o Dir::State::Lists="$apt_folder/lists" -o Dir::Cache="$apt_folder/cache" "$@"
}
# the index of source packages, no older than a day if the archive can be reached
update_index() {
  mkdir -p "$apt_folder/lists/partial" "$apt_folder/cache/archives/partial" "$apt_folder/sources.d"
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.{sources,list}; do
    [ -f "$file" ] || continue
    sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb /deb-src /' "$file" > "$temporary/${file##*/}"
  done
  [ ! -f "$temporary/sources.list" ] || mv "$temporary/sources.list" "$temporary/all.list"
  if diff -rq "$temporary" "$apt_folder/sources.d" > /dev/null && [ -n "$(find "$apt_folder/updated" -mtime -1 2> /dev/null)" ]; then
    return
  fi
  rm -rf "$apt_folder/sources.d" "$apt_folder/updated"
  cp -r "$temporary" "$apt_folder/sources.d"
  if our_apt -o APT::Update::Error-Mode=any update; then
    touch "$apt_folder/updated"
  elif compgen -G "$apt_folder/lists/*Sources*" > /dev/null; then
    echo "the index of source packages cannot be fetched: the one fetched earlier is used" >&2
  else
    die "the index of source packages cannot be fetched, see above: is there a network, and does /etc/apt name Debian's archive?"
  fi
}
# the versions of a source package in the index, the newest first
versions_of() {
  our_apt_cache showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -uV | tac
}
# fetches and unpacks version $2 of a source package, with Debian's patches, if it is not there
fetch() {
  local package=$1 version=$2 kept new=$temporary/fetch
  kept=$(kept_of "$package" "$version")
  [ ! -d "$kept" ] || return 0
  rm -rf "$new"
  mkdir "$new"
  (cd "$new" && our_apt source "$package=$version" > /dev/null) || return 1
  # other versions
  rm -rf "$work/$package"_*
  mv -T "$(find "$new" -mindepth 1 -maxdepth 1 -type d)" "$kept"
}
# the folder of a version: without an epoch, as in the names of its files
kept_of() {
  echo "$work/$1_${2#*:}"
}

# true if the program is to be built
is_wanted() {
  [ ${#names[@]} = 0 ] || [[ " ${names[*]} " = *" $1 "* ]]
}

# true if the program is there and was made from this
is_made_from() {
  [ -x "$out/$1" ] && [ "$(cat "$out/.$1.from" 2> /dev/null)" = "$2" ]
}
# Puts a program into the folder: the file $2, made from $3
put() {
  cp "$2" "$out/.$1.new"
  chmod 755 "$out/.$1.new"
  rm -f "$out/.$1.from"
  mv -T "$out/.$1.new" "$out/$1"
  echo "$3" > "$out/.$1.from"
}

# build NAME PACKAGE: the function make_NAME makes the file that it is given, in the source's folder. Its commands are joined by
# &&: bash does not end a function at the first failure if the caller asks for the result
build() {
  local name=$1 package=$2 version from source versions
  is_wanted "$name" || return 0
  mapfile -t versions < <(versions_of "$package")
  [ ${#versions[@]} -gt 0 ] || die "the archive has no source package $package"
  for version in "${versions[@]}"; do
    from="$package $version, $recipe"
    ! is_made_from "$name" "$from" || return 0
    echo "building $name of $package $version" >&2
    ! fetch "$package" "$version" || break
    # an index may be a day old, and may name a version before the archive has its files
    if [ -z "${COLONY_NEW_INDEX:-}" ]; then
      echo "the archive does not have $package $version: fetching the index again" >&2
      rm -f "$apt_folder/updated"
      COLONY_NEW_INDEX=1 exec "$0" "$out" "${names[@]}"
    fi
    [ "$version" != "${versions[-1]}" ] ||
      die "the source of $package cannot be fetched in any version (${versions[*]}), see above: is there a network?"
    echo "the archive's index names $package $version, but the archive does not have it: taking the next older version" >&2
  done
  source=$temporary/source
  rm -rf "$source"
  cp -a "$(kept_of "$package" "$version")" "$source"
  (cd "$source" && "make_$name" "$temporary/$name") > "$work/$name.log" 2>&1 ||
    { tail -20 "$work/$name.log" >&2; die "$name of $package $version does not build: see $work/$name.log"; }
  strip "$temporary/$name"
  put "$name" "$temporary/$name" "$from"
}

cflags=(-O2 -static -w)
make_lua() {
  # no readline, no dynamic loading: the two things that need more than libc
  local cc=${2:-gcc}
  # Debian's rules make this header
  echo '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"' > src/lua5.4-deb-multiarch.h &&
    rm src/luac.c && cd src &&
    "$cc" "${cflags[@]}" -DLUA_USE_POSIX -o "$1" ./*.c -lm
}
make_lua-musl() {
  make_lua "$1" musl-gcc
}
make_sqlite3() {
  ./configure --disable-tcl --disable-readline --enable-static && make sqlite3.c shell.c &&
    gcc "${cflags[@]}" -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -o "$1" shell.c sqlite3.c -lm
}
make_zstd() {
  local files="programs/zstdcli.c programs/util.c programs/timefn.c programs/fileio.c programs/fileio_asyncio.c programs/benchfn.c programs/benchzstd.c programs/datagen.c programs/dibio.c programs/lorem.c programs/zstdcli_trace.c"
  local there=""
  for f in $files; do [ ! -f "$f" ] || there="$there $f"; done
  # shellcheck disable=SC2086  # one word a file
  gcc "${cflags[@]}" -DZSTD_DISABLE_ASM -DBACKTRACE_ENABLE=0 -Ilib -Ilib/common -o "$1" $there lib/common/*.c lib/compress/*.c lib/decompress/*.c lib/dictBuilder/*.c
}

# a compressor with threads
make_xz() {
  ./configure --disable-shared --enable-static --disable-nls --disable-scripts --disable-doc &&
    make -j2 -C src/liblzma && make -C src/xz LDFLAGS="-all-static" && cp src/xz/xz "$1"
}
# evolutionary trees, by OpenMP
make_fasttree() {
  gcc "${cflags[@]}" -DOPENMP -fopenmp -o "$1" ./*.c -lm
}
# build_go NAME WHAT FROM: of the Go that is installed, one file without a C library
build_go() {
  local go from
  is_wanted "$1" || return 0
  go=$(go version)
  from="$3, $go, $recipe"
  ! is_made_from "$1" "$from" || return 0
  echo "building $1 with $go" >&2
  GOCACHE=$work/go GOPROXY=off GOFLAGS='' GOTOOLCHAIN=local CGO_ENABLED=0 go build -o "$temporary/$1" "$2"
  put "$1" "$temporary/$1" "$from"
}

all=(busybox fasttree gofmt goroutines lua lua-musl sqlite3 xz zstd)
for name in "${names[@]}"; do
  [[ " ${all[*]} " = *" $name "* ]] || die "there is no program $name. There are: ${all[*]}"
done
recipe="programs.sh $(sha256sum < "$0" | cut -c1-16)"
update_index
build lua lua5.4
build lua-musl lua5.4
build sqlite3 sqlite3
build zstd libzstd
build xz xz-utils
build fasttree fasttree
# a program that comes with Go
build_go gofmt cmd/gofmt cmd/gofmt
# one of ours over the runtime of Go
goroutines=$here/../crates/app/colony/tests/cnk/goroutines.go
build_go goroutines "$goroutines" "$(sha256sum < "$goroutines" | cut -c1-16)"
busybox=$(command -v busybox)
! is_wanted busybox || cmp -s "$busybox" "$out/busybox" || put busybox "$busybox" "$busybox"
