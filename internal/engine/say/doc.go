// SPDX-License-Identifier: MPL-2.0

// Package say puts the end of a run into words: why it stopped, in which state the nodes and the cluster are
// left, and what to do. It turns values into texts. It calls no port, and reads nothing that the upgrades share.
package say
