// SPDX-License-Identifier: MPL-2.0

// Package wire has the tests in which the engine upgrades simulated clusters through the real adapters, over the real
// protocols, in virtual time: gRPC with mutual TLS through endpoints that forward, and HTTP/2 to an API server, all
// of it over pipes within a bubble. They strike connections: a connection breaks before or after a request was
// handled, swallows what is sent, or ends with its process.
//
// A soak (TALOSUPGRADE_SOAK) strikes every request that changes something in every possible way, and then draws from
// one seed after the other.
package wire
