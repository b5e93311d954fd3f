// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// The minor versions of Talos that have a module of their own in internal/tools.
const (
	lineBefore = "1.12"
	lineAfter  = "1.14"
)

// module returns the directory in internal/tools that pins the sources of the system.
func (s MachineSystem) module() string {
	if s.Line == "" {
		return "talos"
	}

	return "talos-" + s.Line
}

// imagerOf returns the directory with the programs that make the disk of a system. The imager of Talos 1.12 attaches
// the disk to a loop device and mounts its partitions; a newer one writes a file, and knows the layout of older
// disks.
func imagerOf(ctx context.Context, system MachineSystem, programs string, options Options) (string, error) {
	if system.Line != lineBefore || !system.Disk {
		return programs, nil
	}

	root, _, err := places()
	if err != nil {
		return "", err
	}

	newer := MachineSystem{}

	newer.Version, _, err = moduleSource(ctx, filepath.Join(root, "internal", "tools", newer.module()), talosModule)
	if err != nil {
		return "", err
	}

	return machineTalos(ctx, newer, options)
}

// networkFile returns the path of the configuration of the Pod network. Talos 1.14 mounts an empty /etc/cni.
func (s MachineSystem) networkFile() string {
	if s.Line == lineAfter {
		return "usr/etc/cni/net.d/10-pods.conflist"
	}

	return "etc/cni/net.d/10-pods.conflist"
}

// lineRoot adds to a root directory what only some minor versions of Talos have in it.
func (s MachineSystem) lineRoot(dir, hack string) error {
	err := linkTree(filepath.Join(hack, "udevd"), below(dir, "usr/lib/udev/rules.d"), func(path string) bool {
		return strings.HasSuffix(path, ".rules")
	})
	if err != nil || s.Line != lineAfter {
		return err
	}

	if s.Flaw == FlawBoot {
		return errors.New("the boot sequence of Talos " + s.Line + " writes no file that a directory could be in place of")
	}

	if err := os.MkdirAll(filepath.Dir(below(dir, s.networkFile())), 0o755); err != nil {
		return err
	}

	for name, content := range map[string]string{
		"etc/cri/conf.d/10-pods.part": "[plugins.\"io.containerd.cri.v1.runtime\".cni]\n  conf_dir = \"/usr/etc/cni/net.d\"\n",
		// machined binds a writable copy over it.
		"usr/lib/udev/hwdb.bin": "",
	} {
		if err := os.WriteFile(below(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}

	return os.Symlink("init", below(dir, "usr/bin/sandboxd"))
}
