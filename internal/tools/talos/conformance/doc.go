// SPDX-License-Identifier: MPL-2.0

// Package conformance runs upstream's own health checks, its upgrade of Kubernetes,
// talosctl and etcdutl against a simulated cluster, over sockets and with nothing but
// its talosconfig. It is part of the module that pins Talos, because the packages of
// Talos that it needs bring more than a provider should depend on. The simulator is
// built from the provider's module and runs as a process of its own.
//
// The library of Talos that it uses cannot read the configurations of later
// minors than its own, so the simulated machines run that minor and the one
// before.
//
// The first run compiles a lot, which it shares with what make real builds: run it
// with make conformance, whose flags are the same.
package conformance
