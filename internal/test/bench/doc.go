// SPDX-License-Identifier: MPL-2.0

// Package bench measures what a roll costs and how much time it loses, by the size of the cluster. Counts and ratios
// are measured in virtual time, where they are exact; processor time and memory are those of the provider's process
// over sockets.
package bench
