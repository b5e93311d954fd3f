// SPDX-License-Identifier: MPL-2.0

// Package wire serves a simulated cluster over the real Talos API: gRPC with
// mutual TLS, one endpoint per machine. As on Talos, an endpoint is a proxy
// that knows the caller's roles from its certificate and routes by the
// metadata keys node and nodes; behind it each machine has its own services,
// those of its own version. An endpoint refuses connections while its machine
// is down or its API does not answer, and comes back at the same address.
package wire
