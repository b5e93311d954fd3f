// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// worldNamespaces separate the processes, mounts, links and names of a world from the machine's own.
const worldNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// lacking returns why this machine cannot run the machines; empty if it can.
func lacking() string {
	if os.Geteuid() != 0 {
		return "it needs root, to make namespaces and mounts"
	}

	command, err := self(roleProbe)
	if err != nil {
		return err.Error()
	}

	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: worldNamespaces | unix.CLONE_NEWCGROUP}

	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Sprintf("it needs namespaces, which are refused here: %v %s", err, said)
	}

	if _, err := hierarchies(); err != nil {
		return err.Error()
	}

	if _, set := os.LookupEnv(machinesVariable); set {
		if _, err := os.Stat("/dev/net/tun"); err != nil {
			return "it needs /dev/net/tun, for the network cards of machines: " + err.Error()
		}
	}

	return ""
}

// self returns a command that runs this binary in another role.
func self(role string, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the test binary: %w", err)
	}

	command := exec.Command(path, args...)
	command.Env = append(os.Environ(), roleVariable+"="+role)

	return command, nil
}

// runWorld runs the tests of this binary in a world of their own and returns their exit code. If anything is left
// behind, it fails.
func runWorld() int {
	code, err := makeWorld()
	if err != nil {
		fmt.Fprintf(os.Stderr, "make real: %v\n", err)

		return 1
	}

	return code
}

func makeWorld() (code int, err error) {
	// A Ctrl-C in a terminal reaches the tests themselves, which end in an orderly way.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	signal.Ignore(syscall.SIGINT)

	// The parent-death signal of this process, and of what it starts, follows a thread, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// If the go command was killed, nothing would wait for the run.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return 1, fmt.Errorf("asking to end with the go command: %w", err)
	}

	made, err := prepare(ctx, os.Stderr)
	if err != nil {
		return 1, err
	}

	if err := announce(os.Stderr); err != nil {
		return 1, err
	}

	before, err := lookAround("")
	if err != nil {
		return 1, err
	}

	run, err := openRun(made)
	if err != nil {
		return 1, err
	}

	sweeper, err := run.startSweeper()
	if err != nil {
		return 1, err
	}

	code, err = run.inside(ctx)
	err = errors.Join(err, sweeper.finish())
	if err != nil {
		return 1, err
	}

	left, err := leftSince(before, filepath.Base(run.dir))
	if err != nil {
		return 1, err
	}

	if len(left) > 0 {
		return 1, fmt.Errorf("the run left behind:\n%s", strings.Join(left, "\n"))
	}

	fmt.Fprintln(os.Stderr, "the run left nothing: namespaces, mounts, links and cgroups are as they were before")

	return code, nil
}

// announce prints what is special about this machine, and what is done about it.
func announce(progress io.Writer) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}

	if all[0].unified() {
		fmt.Fprintln(progress, "cgroups are of version 2 here, with which this has not been run so far")
	} else {
		fmt.Fprintln(progress, "cgroups are of version 1 here: kubelets have failCgroupV1: false, and the hierarchies are mounted in their containers again")
	}

	if !mayLowerOOMScores() {
		fmt.Fprintln(progress, "CAP_SYS_RESOURCE is missing here: machined tolerates it, and a wrapper of runc drops what needs it")
	}

	return nil
}

// inside runs the tests in new namespaces and waits for them.
func (r *run) inside(ctx context.Context) (int, error) {
	command, err := self(roleInit, os.Args[1:]...)
	if err != nil {
		return 1, err
	}

	gate, open, err := os.Pipe()
	if err != nil {
		return 1, fmt.Errorf("making a pipe: %w", err)
	}

	defer gate.Close()
	defer open.Close()

	command.Stdin, command.Stdout, command.Stderr = gate, os.Stdout, os.Stderr
	command.Env = append(command.Env, worldVariable+"="+r.dir)
	// The kernel kills the init of the world with the thread that created it, and everything in the world with its
	// init.
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: worldNamespaces, Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second

	if err := command.Start(); err != nil {
		return 1, fmt.Errorf("starting the world: %w", err)
	}

	release := context.AfterFunc(ctx, func() { _ = command.Process.Signal(syscall.SIGTERM) })
	defer release()

	// It begins only once it is in the cgroup in which everything that it starts will be.
	leaves, err := r.cgroups.leaves()
	if err == nil {
		err = leaves.enter(command.Process.Pid)
	}

	if err != nil {
		return 1, errors.Join(err, command.Process.Kill(), command.Wait())
	}

	_ = open.Close()

	err = command.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, failed.ExitCode()), nil
	}

	return 0, err
}

// beInit is the first process of a world: it prepares the namespaces, runs the tests
// and reaps what they leave.
func beInit() error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("waiting for the cgroups: %w", err)
	}

	// Files that the process which started the run had open, such as a lock, must not be passed on to the machines.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keeping files to this process: %w", err)
	}

	dir := os.Getenv(worldVariable)

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts in the world: %w", err)
	}

	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc of the world: %w", err)
	}

	// What machines write is in memory and is gone with the world.
	if err := unix.Mount("tmpfs", filepath.Join(dir, stateDir), "tmpfs", 0, "mode=0755,size=80%"); err != nil {
		return fmt.Errorf("mounting the state of the world: %w", err)
	}

	if err := bringUpLoopback(); err != nil {
		return err
	}

	command, err := self(roleTests, os.Args[1:]...)
	if err != nil {
		return err
	}

	command.Stdout, command.Stderr = os.Stdout, os.Stderr

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)

	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the tests: %w", err)
	}

	go func() {
		for one := range signals {
			_ = command.Process.Signal(one)
		}
	}()

	os.Exit(reap(command.Process.Pid))

	return nil
}

// reap waits for every child until the given one has ended, and returns the exit code of that one.
func reap(wanted int) int {
	for {
		var status syscall.WaitStatus

		pid, err := syscall.Wait4(-1, &status, 0, nil)

		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			fmt.Fprintf(os.Stderr, "waiting for the tests: %v\n", err)

			return 1
		case pid != wanted:
			continue
		case status.Signaled():
			fmt.Fprintf(os.Stderr, "the tests were ended by %s\n", status.Signal())

			return 1
		default:
			return status.ExitStatus()
		}
	}
}

// programs are everything that machines are made from, and what upgrades them.
type programs struct {
	Talos                toolchain.TalosBuild
	Containerd           string
	Packages             string
	Runc, Pause, Kubelet string
	Etcd                 string
	// Releases are those of Kubernetes, by their version.
	Releases map[string]toolchain.Release
	CLI      toolchain.CLI
	// Machines are those of QEMU, Actions is a Terraform that invokes actions. Both are nil in make real.
	Machines *toolchain.MachineImages
	Actions  *toolchain.CLI
	Provider string
}

// prepare builds or finds what machines are made from. A world has no network from which anything could be fetched,
// so this is done before.
func prepare(ctx context.Context, progress io.Writer) (programs, error) {
	var (
		made    programs
		err     error
		options = toolchain.Options{Progress: progress}
	)

	if made.Talos, err = toolchain.Talos(ctx, !mayLowerOOMScores(), options); err != nil {
		return programs{}, err
	}

	if made.Containerd, err = toolchain.Containerd(ctx, options); err != nil {
		return programs{}, err
	}

	if made.Packages, err = toolchain.MachinePackages(ctx, options); err != nil {
		return programs{}, err
	}

	for name, path := range map[string]*string{"runc": &made.Runc, "pause": &made.Pause, "kubelet": &made.Kubelet} {
		if *path, err = toolchain.Program(ctx, "./internal/test/real/"+name, options); err != nil {
			return programs{}, err
		}
	}

	binaries, err := toolchain.Kubernetes(ctx, options)
	if err != nil {
		return programs{}, err
	}

	made.Etcd = binaries.Etcd

	chosen, err := chosenParts()
	if err != nil {
		return programs{}, err
	}

	made.Releases = map[string]toolchain.Release{}

	for _, wanted := range kubernetesReleases(chosen) {
		if made.Releases[wanted.String()], err = toolchain.KubernetesRelease(ctx, wanted, options); err != nil {
			return programs{}, err
		}
	}

	if err := made.prepareMachines(ctx, chosen, options); err != nil {
		return programs{}, err
	}

	if made.CLI, err = toolchain.Terraform(ctx, options); err != nil {
		return programs{}, err
	}

	if made.Provider, err = toolchain.BuildProvider(ctx, options); err != nil {
		return programs{}, err
	}

	return made, nil
}

// prepareMachines prepares what machines in QEMU are made from; without a part it does nothing.
func (p *programs) prepareMachines(ctx context.Context, chosen []part, options toolchain.Options) error {
	if len(chosen) == 0 {
		return nil
	}

	images, err := toolchain.Machines(ctx, p.Containerd, systemsOf(p.Talos.Version, chosen), options)
	if err != nil {
		return err
	}

	p.Machines = &images

	if slices.ContainsFunc(chosen, func(one part) bool { return one.actions }) {
		cli, err := toolchain.PinnedTerraform(ctx, options)
		if err != nil {
			return err
		}

		p.Actions = &cli
	}

	return nil
}

// mayLowerOOMScores reports whether this process has CAP_SYS_RESOURCE.
func mayLowerOOMScores() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

	var data [2]unix.CapUserData

	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}

	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
