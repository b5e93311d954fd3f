// SPDX-License-Identifier: MPL-2.0

// Package real runs the provider against Talos itself: machined with apid and trustd, containerd, etcd, the kubelet
// and the Kubernetes components, built from their modules, in Talos' container mode. make real runs it.
//
// Each machine is a root directory and namespaces. The machines, their network, their registry, their discovery
// service and the tests are in one world: a process ID, mount and network namespace whose init the kernel kills
// together with the process that created it. So only cgroups and a directory of the cache can outlive a run, and
// those are removed by a process that only waits for the end of the run, or by the next run.
//
// Container mode has no boot slots: it refuses Upgrade and Rollback, and the provider plans no upgrade of Talos
// there; drains are run through its engine, up to that refusal. make machines runs the workers, or a control plane
// that is alone, as machines in QEMU, in such a world: disks that Talos' imager made, OVMF, systemd-boot, and a
// kernel and tools of Debian. Such a machine is a process of the same world, with a network card on the same bridge,
// so it ends with the world.
package real
