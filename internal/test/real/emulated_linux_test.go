// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// configPort is the port from which a machine gets its configuration.
	configPort = "8080"
	// machineMemory is the memory of a machine in MiB, which QEMU takes from this machine.
	machineMemory = 3072
)

// makeInstallers adds images that install the systems. If several have the same name, the first one is served; a
// later one is pushed over it.
func (w *world) makeInstallers(made map[string]*layer) {
	if w.programs.Machines == nil {
		return
	}

	served := map[string]bool{}

	for _, one := range w.programs.Machines.Versions {
		reference := installerOf(one.MachineSystem)
		if !served[reference] {
			made[reference], served[reference] = installerLayer(one), true
		}
	}
}

// installerOf returns the image that installs a system.
func installerOf(system toolchain.MachineSystem) string {
	if system.Schematic != "" {
		return factoryRepository + system.Schematic + ":" + system.Version
	}

	return "ghcr.io/siderolabs/installer:" + system.Version
}

// factoryRepository is where the Image Factory has images, by schematic.
const factoryRepository = "factory.talos.dev/metal-installer/"

// installerLayer returns a layer with the installer and only the files that an installation with systemd-boot copies.
func installerLayer(one toolchain.MachineVersion) *layer {
	const assets = "usr/install/" + architecture + "/"

	return &layer{files: []file{
		program(one.Installer, "usr/bin/installer"),
		program(one.UKI, assets+"vmlinuz.efi"),
		program(one.Boot, assets+"systemd-boot.efi"),
		{path: "bin", link: "usr/bin"},
	}}
}

// serveConfigs serves the configurations of all machines that request theirs.
func (w *world) serveConfigs() error {
	if w.ground == containers {
		return nil
	}

	listener, err := net.Listen("tcp", net.JoinHostPort(gateway.String(), configPort))
	if err != nil {
		return fmt.Errorf("listening for machines without a configuration: %w", err)
	}

	w.configs = &httptest.Server{Listener: listener, Config: &http.Server{
		ReadHeaderTimeout: callPatience,
		Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			for _, m := range w.machines {
				if request.URL.Path == "/"+m.name {
					_, _ = writer.Write(m.config)

					return
				}
			}

			http.NotFound(writer, request)
		}),
	}}
	w.configs.Start()

	return nil
}

// emulate starts the machine: the first time with a new disk, after that with the same disk and firmware variables.
func (m *machine) emulate(w *world) error {
	tools, ctx := w.programs.Machines.Tools, context.Background()
	disk, variables := filepath.Join(m.dir, "disk.qcow2"), filepath.Join(m.dir, "variables.fd")
	code, fresh := tools.Firmware()

	if _, err := os.Stat(disk); errors.Is(err, os.ErrNotExist) {
		made := tools.Command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-b", w.image(), "-F", "raw", disk)
		if said, err := made.CombinedOutput(); err != nil {
			return fmt.Errorf("making the disk: %w\n%s", err, said)
		}

		content, err := os.ReadFile(fresh)
		if err == nil {
			err = os.WriteFile(variables, content, 0o600)
		}

		if err != nil {
			return fmt.Errorf("making the variables of the firmware: %w", err)
		}
	}

	tap, err := newTap(m.name)
	if err != nil {
		return err
	}
	defer tap.Close()

	log, err := os.OpenFile(m.complaints(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("making the log of QEMU: %w", err)
	}
	defer log.Close()

	number := m.address.As4()[3]

	// systemd-stub appends it to the arguments of the kernel, and so does Talos if it boots by kexec.
	arguments := fmt.Sprintf("ip=%s::%s:%s::%s:off", m.address, gateway, net.IP(net.CIDRMask(network.Bits(), 32)), machineLink)
	if !m.unconfigured {
		arguments = fmt.Sprintf("talos.config=http://%s/%s %s", net.JoinHostPort(gateway.String(), configPort), m.name, arguments)
	}

	m.command = tools.Command(ctx, "qemu-system-x86_64",
		"-L", tools.Data(), "-nodefaults", "-no-user-config", "-display", "none", "-name", m.name,
		"-machine", "q35,hpet=off", "-accel", w.accelerator(ctx), "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(machineMemory),
		"-uuid", newUUID(),
		"-drive", "if=pflash,format=raw,readonly=on,file="+code, "-drive", "if=pflash,format=raw,file="+variables,
		// What the machine has flushed survives a loss of its power: QEMU must not keep it in its own memory.
		"-drive", "if=virtio,format=qcow2,cache=writeback,file="+disk,
		"-netdev", "tap,id=net,fd=3", "-device", fmt.Sprintf("virtio-net-pci,netdev=net,romfile=,mac=52:54:00:0a:05:%02x", number),
		"-device", "virtio-rng-pci", "-chardev", "file,id=console,append=on,path="+m.log(), "-serial", "chardev:console",
		"-smbios", "type=11,value=io.systemd.stub.kernel-cmdline-extra="+arguments)
	m.command.ExtraFiles = []*os.File{tap}
	m.command.Stdout, m.command.Stderr = log, log
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}

	return m.start()
}

// image returns the disk of new machines.
func (w *world) image() string {
	all, first := w.programs.Machines.Versions, w.ground.first(w.programs.Talos.Version)
	at := slices.IndexFunc(all, func(one toolchain.MachineVersion) bool { return one.MachineSystem == first })

	return all[at].Image
}

// complaints returns the path of the output of QEMU.
func (m *machine) complaints() string { return m.log() + ".qemu" }

const (
	// emulation is QEMU without help from the processor: one thread for each CPU of a machine, and 512 MiB for
	// translated code.
	emulation = "tcg,thread=multi,tb-size=512"
	// acceleration is QEMU with help from the processor.
	acceleration = "kvm"
)

// accelerator returns how machines are run here. /dev/kvm may exist, and may be opened, although a guest does not run
// its first instruction, so the firmware is booted with it once.
func (w *world) accelerator(ctx context.Context) string {
	w.probe.Do(func() {
		w.accel = emulation

		if _, err := os.Stat("/dev/kvm"); err != nil {
			w.say("machines are emulated: there is no /dev/kvm")

			return
		}

		const patience = 20 * time.Second

		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()

		tools := w.programs.Machines.Tools
		code, _ := tools.Firmware()
		said := &firstByte{seen: cancel}

		command := tools.Command(ctx, "qemu-system-x86_64", "-L", tools.Data(), "-nodefaults", "-no-user-config", "-display", "none",
			"-machine", "q35", "-accel", acceleration, "-cpu", "max", "-m", "256",
			"-drive", "if=pflash,format=raw,readonly=on,file="+code, "-serial", "stdio")
		command.Stdout = said
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

		_ = command.Run()

		if said.any {
			w.accel = acceleration
			w.say("machines run on KVM: the firmware has booted with it")
		} else {
			w.say("machines are emulated: with /dev/kvm, the firmware does not boot")
		}
	})

	return w.accel
}

// firstByte calls seen once something other than white space is written to it.
type firstByte struct {
	seen func()
	any  bool
}

func (f *firstByte) Write(p []byte) (int, error) {
	f.any = f.any || len(bytes.TrimSpace(p)) > 0
	if f.any {
		f.seen()
	}

	return len(p), nil
}

// newTap creates a network card for QEMU, attached to the bridge. It is removed when the file is closed.
func newTap(name string) (*os.File, error) {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the device for network cards: %w", err)
	}

	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("naming a network card: %w", err), file.Close())
	}

	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)

	if err := unix.IoctlIfreq(int(file.Fd()), unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(fmt.Errorf("making the network card %s: %w", name, err), file.Close())
	}

	if err := plugCardIn(name); err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return file, nil
}

// plugCardIn attaches a link to the bridge and brings it up.
func plugCardIn(name string) error {
	links, err := rtnetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("reaching the network of the kernel: %w", err)
	}
	defer links.Close()

	bridge, err := net.InterfaceByName(bridgeName)
	if err != nil {
		return fmt.Errorf("finding the bridge: %w", err)
	}

	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("finding the network card %s: %w", name, err)
	}

	err = links.Link.Set(&rtnetlink.LinkMessage{
		Index: uint32(link.Index), Flags: unix.IFF_UP, Change: unix.IFF_UP,
		Attributes: &rtnetlink.LinkAttributes{Master: new(uint32(bridge.Index))},
	})
	if err != nil {
		return fmt.Errorf("plugging %s in: %w", name, err)
	}

	return nil
}

// needMachines skips a test outside of make machines.
func needMachines(t *testing.T) {
	t.Helper()

	if _, set := os.LookupEnv(machinesVariable); !set {
		t.Skipf("%s is not set: make machines sets it", machinesVariable)
	}
}
