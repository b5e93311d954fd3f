// SPDX-License-Identifier: MPL-2.0

// Package talosapi reaches the machines of a cluster over the Talos API. It
// implements [cluster.Talos], and lends the state of a node to libraries that
// read it themselves ([Client.State]): what to do and when is decided elsewhere.
//
// Every call is addressed to one node with single-valued "node" metadata and
// goes through any endpoint that answers. Resources are read as raw COSI
// messages rather than through machinery's typed state, because the typed
// decoder refuses machine configurations with documents it does not know. They
// are changed as text for the same reason: nothing but an image is to differ
// afterwards.
package talosapi

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var _ cluster.Talos = (*Client)(nil)
