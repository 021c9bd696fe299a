#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds programs that nobody here wrote from Debian's source packages, each as one static file, into a folder:
# lua (5.4; by glibc and by musl), sqlite3, zstd, xz (threads), fasttree (OpenMP), gofmt (of the Go that is installed), and
# a copy of busybox. They run unmodified on the compute node kernel and on Linux.
#
#   images/programs.sh FOLDER
#
# apt checks the sources against the archive's signed index. What is there already is not built again.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
out=$(realpath -m "${1:?usage: images/programs.sh FOLDER}")
mkdir -p "$out"
work=${XDG_CACHE_HOME:-$HOME/.cache}/colony/sources
mkdir -p "$work"
exec 9> "$work/lock"
flock 9

# an apt of our own: this system's archives, their source packages, its keys; nothing of the system is changed
apt_folder=$work/apt
sources() {
  mkdir -p "$apt_folder/lists/partial" "$apt_folder/cache/archives/partial" "$apt_folder/sources.d"
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.{sources,list}; do
    [ -f "$file" ] || continue
    sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb /deb-src /' "$file" > "$apt_folder/sources.d/${file##*/}"
  done
  [ ! -f "$apt_folder/sources.d/sources.list" ] || mv "$apt_folder/sources.d/sources.list" "$apt_folder/sources.d/all.list"
}
our_apt() {
  apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt_folder/sources.d" \
    -o Dir::State::Lists="$apt_folder/lists" -o Dir::Cache="$apt_folder/cache" -o APT::Sandbox::User=root "$@"
}
# the unpacked source of a package, with Debian's patches; in $source
fetch() {
  local package=$1
  source=$(find "$work" -maxdepth 1 -type d -name "$package-*" | sort | tail -1)
  [ -z "$source" ] || return 0
  [ -d "$apt_folder/lists/partial" ] && compgen -G "$apt_folder/lists/*Sources*" > /dev/null || { sources; our_apt update; }
  (cd "$work" && our_apt source "$package" > /dev/null)
  source=$(find "$work" -maxdepth 1 -type d -name "$package-*" | sort | tail -1)
  [ -n "$source" ] || { echo "error: there is no source of $package" >&2; exit 1; }
}

# build NAME PACKAGE: the function of that name makes $tmp, in the source's folder
build() {
  local name=$1 package=$2
  [ ! -x "$out/$name" ] || return 0
  local source tmp=$out/.$name.$$
  fetch "$package"
  echo "building $name of $package" >&2
  (cd "$source" && "make_$name" "$tmp") > "$work/$name.log" 2>&1 || { tail -20 "$work/$name.log" >&2; exit 1; }
  strip "$tmp"
  mv "$tmp" "$out/$name"
}

cflags="-O2 -static -w"
make_lua() {
  # no readline, no dynamic loading: the two things that need more than libc
  local cc=${2:-gcc}
  # Debian's rules make this header
  echo '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"' > src/lua5.4-deb-multiarch.h
  (cd src && $cc $cflags -DLUA_USE_POSIX -o "$1" $(ls ./*.c | grep -v luac.c) -lm)
}
make_lua-musl() {
  make_lua "$1" musl-gcc
}
make_sqlite3() {
  [ -f sqlite3.c ] || { ./configure --disable-tcl --disable-readline --enable-static && make sqlite3.c shell.c; }
  gcc $cflags -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -o "$1" shell.c sqlite3.c -lm
}
make_zstd() {
  local files="programs/zstdcli.c programs/util.c programs/timefn.c programs/fileio.c programs/fileio_asyncio.c programs/benchfn.c programs/benchzstd.c programs/datagen.c programs/dibio.c programs/lorem.c programs/zstdcli_trace.c"
  local there=""
  for f in $files; do [ ! -f "$f" ] || there="$there $f"; done
  # shellcheck disable=SC2086  # one word a file
  gcc $cflags -DZSTD_DISABLE_ASM -DBACKTRACE_ENABLE=0 -Ilib -Ilib/common -o "$1" $there lib/common/*.c lib/compress/*.c lib/decompress/*.c lib/dictBuilder/*.c
}

# a compressor with threads
make_xz() {
  [ -f Makefile ] || ./configure --disable-shared --enable-static --disable-nls --disable-scripts --disable-doc > /dev/null
  make -j2 -C src/liblzma > /dev/null
  make -C src/xz LDFLAGS="-all-static" > /dev/null
  cp src/xz/xz "$1"
}
# evolutionary trees, by OpenMP
make_fasttree() {
  gcc $cflags -DOPENMP -fopenmp -o "$1" ./*.c -lm
}
# the program that comes with Go: one file without a C library
build_gofmt() {
  [ ! -x "$out/gofmt" ] || return 0
  command -v go > /dev/null || { echo "error: there is no go (golang-go)" >&2; exit 1; }
  echo "building gofmt of $(go version)" >&2
  GOCACHE=$work/go GOPROXY=off GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 go build -o "$out/.gofmt.$$" cmd/gofmt
  mv "$out/.gofmt.$$" "$out/gofmt"
}
# one of ours over the runtime of Go
build_goroutines() {
  local source=$here/../crates/app/colony/tests/cnk/goroutines.go
  [ ! "$out/goroutines" -nt "$source" ] || return 0
  GOCACHE=$work/go GOPROXY=off GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 go build -o "$out/.goroutines.$$" "$source"
  mv "$out/.goroutines.$$" "$out/goroutines"
}

build lua lua5.4
build lua-musl lua5.4
build sqlite3 sqlite3
build zstd libzstd
build xz xz-utils
build fasttree fasttree
build_gofmt
build_goroutines
[ -x "$out/busybox" ] || install -m 755 "$(command -v busybox)" "$out/busybox"
