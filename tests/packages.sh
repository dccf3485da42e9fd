#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make deb-check: the packages of build/deb in clean Debian systems (debootstrap, as root): DKMS against the headers of
# Debian's 6.1, of its builds of the lab's oldest and newest kernel (as long as there is one), of its newest with the latter's major
# version, and of the lab's own newest if it is in the cache; outside programs by pkg-config and by CMake;
# what is left when they are gone, also where the headers went first; and the commands of the documentation that are for a
# clean system, those that build and install without packages among them. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/../scripts/common.sh"

[ "$(id -u)" = 0 ] || die "chroots are made by root: sudo make deb-check"
debs=$PEERDMA_BUILD/deb
ls "$debs"/peerdma-dkms_*.deb >/dev/null 2>&1 || die "no packages in $debs: make deb"
home=$PEERDMA_CACHE/chroots
trees=$PEERDMA_BUILD/chroots
key=/usr/share/keyrings/debian-archive-keyring.gpg
n=0 bad=0

# check TEXT COMMAND...
check() {
	n=$((n + 1))
	if "${@:2}" >"$trees/log" 2>&1; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		tail -n 30 "$trees/log" | sed 's/^/# /'
		bad=1
	fi
}

# inside NAME COMMAND: as root of it, with namespaces of its own, so that nothing of it stays behind
inside() {
	unshare --mount --pid --ipc --uts --fork --propagation private \
		sh -c 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && mount --bind "$2" "$1/mnt" &&
			exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive bash -ec "$3"' inside "$trees/$1" "$debs" "$2"
}

# system NAME SUITE EXTRA-SUITES PACKAGES: a clean one, with packages of the extra suites too. What debootstrap made is cached.
system() {
	local name=$1 suite=$2 extra=$3 packages=$4 mirror
	mirror=$(machine_mirrors | awk '$1 ~ /\/debian\/?$/ { print $1; exit }')
	mkdir -p "$home" "$trees"
	if [ ! -f "$home/$suite.tar" ]; then
		step "debootstrap $suite"
		rm -rf "$home/$suite.new"
		debootstrap --variant=minbase --include=ca-certificates "$suite" "$home/$suite.new" "$mirror" >"$home/$suite.log" 2>&1 ||
			{ tail -n 5 "$home/$suite.log" >&2; die "debootstrap $suite failed"; }
		tar -C "$home/$suite.new" -cf "$home/$suite.tar.new" . && mv "$home/$suite.tar.new" "$home/$suite.tar"
		rm -rf "$home/$suite.new"
	fi
	rm -rf "${trees:?}/$name" && mkdir -p "$trees/$name"
	tar -C "$trees/$name" -xf "$home/$suite.tar"
	cp /etc/resolv.conf "$trees/$name/etc/"
	echo 'APT::Get::Assume-Yes "true";' >"$trees/$name/etc/apt/apt.conf.d/99yes" # nobody is there to be asked
	{
		echo "deb [signed-by=$key] $mirror $suite main"
		for more in $extra; do echo "deb [signed-by=$key] $mirror $more main"; done
	} >"$trees/$name/etc/apt/sources.list"
	step "$name: $packages"
	inside "$name" "apt-get -qq update && apt-get -qq -y --no-install-recommends install $packages >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
}

# What packages may leave: logs, caches, the lists of dpkg and apt, what depmod writes,
# DKMS's empty folder (a module in it is a fault), the key that DKMS makes for itself.
files() {
	inside "$1" 'find / -xdev \( -path /proc -o -path /tmp -o -path /mnt -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
		-o -path /var/lib/apt -o -path /run -o -path /dev \) -prune -o -print' |
		grep -vE '^/(usr/)?lib/modules/[^/]*/(modules\.|updates(/dkms)?$)|^/var/lib/dkms/(mok|dkms_)|^/etc/(group|gshadow|passwd|shadow)-?$|^/etc/ld.so.cache'
}

# install NAME WORD...: packages of /mnt; what DKMS could not build is shown
install() {
	inside "$1" "apt-get -y --no-install-recommends install ${*:2} || { tail -n 40 /var/lib/dkms/peerdma/*/build/make.log; exit 1; }"
}

# built NAME: one module of DKMS for each kernel whose headers are there
built() {
	inside "$1" 'for headers in /lib/modules/*/build; do
			kernel=$(basename "$(dirname "$headers")")
			for name in peerdma peerdma_rdma peerdma_nfs peerdma_nvidia; do
				ls /lib/modules/"$kernel"/updates/dkms/$name.ko* >/dev/null
			done
			echo "$kernel"
		done'
}

# at_least K KERNEL...: one of them is of K or later
at_least() {
	printf '%s\n' "${@:2}" | awk -F'[.+~-]' -v k="$1" 'BEGIN { split(k, least) }
		$1 > least[1] || ($1 == least[1] && $2 + 0 >= least[2]) { found = 1 } END { exit !found }'
}
# of_kernel K: a regular expression of its releases
of_kernel() { echo "${1//./[.]}[.]"; }

# typed NAME BLOCK FOLDER: what a page says to type, in a folder of it, with sudo and a user whose name is USER
typed() {
	local out status=0 want=0
	cp "$trees/blocks/$2.sh" "$trees/$1/$3/block.sh"
	[[ ! $(head -n 1 "$trees/$1/$3/block.sh") =~ status\ ([0-9]+) ]] || want=${BASH_REMATCH[1]}
	out=$(inside "$1" "id USER >/dev/null 2>&1 || useradd --badname USER; cd '/$3' && PATH=/root/typed:\$PATH bash -euo pipefail block.sh" 2>&1) || status=$?
	rm "$trees/$1/$3/block.sh"
	printf '%s\nstatus %s, not %s\n' "$out" $status "$want"
	[ $status = "$want" ]
}

# says STATUS TEXT COMMAND...: a program that ends so, and says this among others
says() {
	local out status=0
	out=$("${@:3}" 2>&1) || status=$?
	printf '%s\nstatus %s, not %s\n' "$out" $status "$1"
	[ $status = "$1" ] && grep -qF "$2" <<<"$out"
}

mkdir -p "$trees/blocks"
"$PEERDMA_ROOT/scripts/docs.py" --chroot "$trees/blocks"
outside=$trees/bookworm/root/outside

oldest=$(oldest_kernel) newest=$(newest_kernel)
# --- 6.1, the lab's oldest by Debian and its newest by itself, libraries and tools
system bookworm bookworm "bookworm-backports" "dkms g++ cmake make pkg-config libfmt9 libibverbs-dev libtraceevent1 libtracefs1 liburing2 linux-headers-amd64"
new=$(inside bookworm "apt-cache search --names-only '^linux-headers-$(of_kernel "$oldest").*-amd64\$'" | awk '!/cloud|rt/ { print $1 }' | sort -V | tail -n 1)
[ -n "$new" ] || die "bookworm-backports offers no headers of $oldest"
inside bookworm "apt-get -qq -y --no-install-recommends install -t bookworm-backports $new >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
# That which the guests boot: for here, as it was built on Debian 12.
lab='' lab_home=$("$PEERDMA_ROOT/qemu/kernel.sh" have "$newest" 2>/dev/null) || lab_home=
if [ -n "$lab_home" ]; then
	read -r _ lab <"$lab_home/version"
	mkdir -p "$trees/bookworm/lib/modules/$lab"
	cp -r "$lab_home/build" "$trees/bookworm/lib/modules/$lab/"
fi
files bookworm >"$trees/before"
check "they install on Debian 12" install bookworm "\$(ls /mnt/*.deb | grep -v dbgsym)"
check "DKMS built for its kernels" built bookworm
kernels=$(built bookworm 2>/dev/null | tr '\n' ' ') || true
for want in 6.1 "$oldest"; do check "among them $want: $kernels" grep -q "\(^\| \)$(of_kernel "$want")" <<<"$kernels"; done
if [ -n "$lab" ]; then
	check "among them the lab's $lab: $kernels" grep -q "\(^\| \)$lab\( \|\$\)" <<<"$kernels"
else
	n=$((n + 1))
	echo "ok $n - among them the lab's $newest # SKIP it is not in the cache: qemu/kernel.sh path $newest"
fi
# The lab's kernel knows no signatures, and has nothing to sign with.
check "its modules are signed" inside bookworm 'for ko in /lib/modules/*-amd64/updates/dkms/*.ko; do tail -c 28 "$ko" | grep -q "Module signature appended"; done'
check "the group is there" inside bookworm 'getent group peerdma'
check "the command runs" inside bookworm 'peerdma --version'
mkdir -p "$outside"
"$PEERDMA_ROOT/scripts/docs.py" --block example.cpp >"$outside/example.cpp"
cp "$PEERDMA_ROOT/Documentation/examples/file_to_gpu.cpp" "$outside/"
cat >"$outside/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.13)
project(outside CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(peerdma 0.2 REQUIRED COMPONENTS verbs)
add_executable(example example.cpp)
target_link_libraries(example peerdma::peerdma)
add_executable(file_to_gpu file_to_gpu.cpp)
target_link_libraries(file_to_gpu peerdma::verbs ibverbs)
EOF
check "outside programs by pkg-config" inside bookworm 'mkdir /root/outside/pc && cd /root/outside &&
	g++ -std=c++20 example.cpp -o pc/example $(pkg-config --cflags --libs libpeerdma) &&
	g++ -std=c++20 file_to_gpu.cpp -o pc/file_to_gpu $(pkg-config --cflags --libs libpeerdma libpeerdma-verbs) -libverbs'
check "the same by CMake" inside bookworm 'cd /root/outside && cmake -S . -B cm && make -C cm'
for by in pc cm; do
	check "$by: it opens the device, or says what is missing and what to do" says 1 "/dev/peerdma: No such file or directory" \
		inside bookworm "/root/outside/$by/example /etc/hostname"
	check "$by: that of verbs says what is missing" says 1 "file_to_gpu: " \
		inside bookworm "/root/outside/$by/file_to_gpu send /etc/hostname 127.0.0.1 1"
done
check "a part that there is none of, by CMake, is refused" inside bookworm 'mkdir /tmp/d && cd /tmp/d && printf "%s\n" "cmake_minimum_required(VERSION 3.13)" \
	"project(d CXX)" "find_package(peerdma 0.2 REQUIRED COMPONENTS warp)" >CMakeLists.txt && ! cmake . 2>err && grep -q "no peerdma::warp" err'
rm -rf "$outside"
check "a later version than there is, by CMake, is refused" inside bookworm 'mkdir /tmp/c && cd /tmp/c && printf "%s\n" "cmake_minimum_required(VERSION 3.13)" \
	"project(c CXX)" "find_package(peerdma 9 REQUIRED)" >CMakeLists.txt && ! cmake .'
check "peerdma-cufile runs a program with our library" inside bookworm 'peerdma-cufile grep -q /usr/lib/peerdma/libcufile.so.0 /proc/self/maps'
check "and nobody else gets it" inside bookworm '! ldconfig -p | grep libcufile && ! grep -q libcufile /proc/self/maps'
check "there is a cufile.json" inside bookworm 'test "$(readlink -f /etc/cufile.json)" = /etc/peerdma/cufile.json && grep -qx "{}" /etc/cufile.json'
check "another package's goes before it" inside bookworm 'mkdir -p /opt/gds && echo "{ }" >/opt/gds/cufile.json &&
	update-alternatives --install /etc/cufile.json cufile.json /opt/gds/cufile.json 130 &&
	test "$(readlink -f /etc/cufile.json)" = /opt/gds/cufile.json && update-alternatives --remove cufile.json /opt/gds/cufile.json &&
	test "$(readlink -f /etc/cufile.json)" = /etc/peerdma/cufile.json && rm -r /opt/gds'
check "the administrator's own stays" inside bookworm 'apt-get -y remove libcufile-peerdma && ! test -L /etc/cufile.json &&
	echo "{\"logging\": {}}" >/etc/cufile.json && apt-get -y --no-install-recommends install /mnt/libcufile-peerdma_*.deb &&
	grep -q logging /etc/cufile.json && apt-get -y remove libcufile-peerdma && grep -q logging /etc/cufile.json && rm /etc/cufile.json &&
	ln -s /etc/hostname /etc/cufile.json && apt-get -y --no-install-recommends install /mnt/libcufile-peerdma_*.deb &&
	test "$(readlink /etc/cufile.json)" = /etc/hostname && rm /etc/cufile.json'
check "they go" inside bookworm "apt-get -y purge 'peerdma-*' 'libpeerdma*' libcufile-peerdma"
files bookworm >"$trees/after"
check "and leave nothing" diff "$trees/before" "$trees/after"

# --- What the pages say to type: the packages, and then all of it by hand. What this kernel is must not matter: modprobe has to
# find the module for the newest one that is installed, and loads nothing.
shims() {
	mkdir -p "$trees/$1/root/typed"
	cat >"$trees/$1/root/typed/modprobe" <<'EOF'
#!/bin/sh
exec /sbin/modprobe --dry-run --verbose --set-version "$(ls /lib/modules | sort -V | tail -n 1)" "$@"
EOF
	chmod +x "$trees/$1/root/typed/modprobe"
	printf '#!/bin/sh\nPATH=%s:/usr/sbin:/usr/bin:/sbin:/bin exec "$@"\n' /root/typed >"$trees/$1/root/typed/sudo"
	chmod +x "$trees/$1/root/typed/sudo"
}
for block in "$trees"/blocks/*.sh; do
	name=$(basename "$block" .sh)
	case $name in
	*-packages-*)
		# make deb was typed before this began.
		system typed bookworm "" "make"
		shims typed
		mkdir -p "$trees/typed/root/tree/build/deb"
		cp "$debs"/*.deb "$trees/typed/root/tree/build/deb/"
		printf 'deb:\n\tls build/deb\n' >"$trees/typed/root/tree/Makefile"
		check "typed: ${name#*-}" typed typed "$name" root/tree
		check "typed: the kernel's own check of the module" says 0 peerdma.ko inside typed '/root/typed/modprobe peerdma'
		check "typed: USER is a member" says 0 peerdma inside typed 'id -nG USER'
		;;
	*-quickstart-*)
		if [ ! -d "$trees/source" ]; then
			system source bookworm "" "ca-certificates"
			shims source
			mkdir "$trees/source/root/tree"
			tar -C "$PEERDMA_ROOT" --exclude=./build --exclude=./.git -c . | tar -C "$trees/source/root/tree" -x
			"$PEERDMA_ROOT/scripts/docs.py" --block example.cpp >"$trees/source/root/tree/example.cpp"
		fi
		check "typed: ${name#*-}" typed source "$name" root/tree
		;;
	*) check "typed: ${name#*-}, of a page that is not known here" false ;;
	esac
done
check "what was typed: the command runs" says 0 peerdma inside source '/usr/local/bin/peerdma --version'
check "what was typed: the example opens the device, or says what is missing" says 1 "/dev/peerdma: No such file or directory" \
	inside source '/root/tree/example /etc/hostname'

# --- Debian's build of the lab's newest, its newest of that major version, and headers that go before the modules do
# headers REGEX: the newest of those releases, for the usual machine
headers() { inside trixie "apt-cache search --names-only '^linux-headers-$1.*-amd64\$'" | awk '!/cloud|rt/ { print $1 }' | sort -V | tail -n 1; }
system trixie trixie trixie-backports "dkms"
major=${newest%%.*}
new=$(headers "${major}[.][0-9]")
[ -n "$new" ] || die "trixie-backports offers no headers of $major.x"
old=$(headers "$(of_kernel "$newest")") # may have left it
inside trixie "apt-get -qq -y --no-install-recommends install -t trixie-backports $new $old >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
check "the module's package installs on Debian 13" install trixie '/mnt/peerdma-dkms_*.deb'
check "DKMS built for ${old:+$old and }$new" built trixie
mapfile -t kernels < <(built trixie 2>/dev/null || true)
if [ -n "$old" ]; then
	check "among them $newest: ${kernels[*]}" grep -q "\(^\| \)$(of_kernel "$newest")" <<<"${kernels[*]}"
else
	n=$((n + 1))
	echo "ok $n - among them Debian's $newest # SKIP trixie-backports has no more of it"
fi
check "that is $newest or later: ${kernels[*]}" at_least "$newest" "${kernels[@]}"
# What peerdma check and the pages say of them.
check "all of them have what it needs" inside trixie 'for config in /lib/modules/*/build/.config; do grep -x CONFIG_PCI_P2PDMA=y "$config" && grep -x CONFIG_ZONE_DEVICE=y "$config"; done'
check "its headers go" inside trixie "apt-get -y purge 'linux-headers-*' && ! ls /lib/modules/*/build/include && ls /lib/modules/*/updates/dkms/peerdma_nfs.ko*"
check "then the module's package" inside trixie 'apt-get -y purge peerdma-dkms'
check "and no module stays" inside trixie '! find / -xdev -path /proc -prune -o -name "peerdma*.ko*" -print -o -path "/var/lib/dkms/peerdma*" -print | grep .'

echo "1..$n"
rm -rf "$trees"
exit $bad
