#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fio.sh: builds build/bin/fio-cufile from Debian's source of fio, unchanged, with its engine libcufile. It is built
# with our cufile.h and the CUDA stand-in and their libraries, for tests/guest/cufile/fio.sh. Run by .ci/run or by hand: it
# takes one or two minutes and needs the network. Status 75: the source could not be downloaded.
set -euo pipefail
. "$(dirname "$0")/common.sh"

work=$PEERDMA_BUILD/fio
links=$work/lib
rm -rf "$work" && mkdir -p "$links" "$work/lists/partial"
"$PEERDMA_ROOT/scripts/user.sh" lib softgpu

# The machine's mirror and keys with separate lists: the machine may not have source entries.
cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null >"$work/debian.sources" || true
sed -i -E 's/^Types: .*/Types: deb-src/; s/^deb /deb-src /' "$work/debian.sources"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/debian.sources" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
	-o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o APT::Sandbox::User=root)
step "fetching fio's source"
(cd "$work" && "${apt[@]}" update && "${apt[@]}" --download-only source fio) || { echo "error: cannot download the source of fio" >&2; exit 75; }
tar -xf "$work"/fio_*.orig.tar.?z -C "$work"
src=$(echo "$work"/fio-*/)

for name in lib/libcufile.so.0 tests/softgpu/libcuda.so.1 tests/softgpu/libcudart.so.12; do
	file=${name##*/}
	ln -s "$PEERDMA_BUILD/$name" "$links/${file%%.so*}.so"
done
step "building fio"
export LIBRARY_PATH=$links LDFLAGS="-Wl,-rpath-link,$PEERDMA_BUILD/lib:$PEERDMA_BUILD/tests/softgpu"
# Without the features that the guest test does not use.
{ cd "$src" && ./configure --enable-libcufile --disable-native --disable-rdma --disable-rados --disable-rbd --disable-gfapi \
	--disable-pmem --disable-numa --disable-xnvme --disable-libnfs --disable-http --disable-tcmalloc \
	--extra-cflags="-I$PEERDMA_ROOT/include -I$PEERDMA_ROOT/tests/softgpu/include" &&
	make -j"$(nproc)" fio; } >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "fio does not build"; }
mkdir -p "$PEERDMA_BUILD/bin"
cp fio "$PEERDMA_BUILD/bin/fio-cufile"
