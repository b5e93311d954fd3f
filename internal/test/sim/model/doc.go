// SPDX-License-Identifier: MPL-2.0

// Package model is a virtual Talos cluster: machines with two system slots, a
// bootloader, boot IDs and stages; an etcd cluster of the control planes; and
// the machine configuration with the components of Kubernetes that follow it:
// static pods, kubelets, and what is rendered for the cluster. It has no sockets and no clients. Faces lead to it: one speaks the
// real Talos API, one plays the Kubernetes side, one is the engine's ports.
//
// Everything that a client could see is recorded through a history.Recorder as
// it happens. All durations are drawn from the seed, so one seed and one
// sequence of calls give one history.
package model
