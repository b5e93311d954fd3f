// SPDX-License-Identifier: MPL-2.0

// Package operator speaks to controllers that may upgrade the same cluster: it
// reads what their objects say, keeps them from acting, asks them to act, and
// reads the credentials that one of them keeps.
//
// Which controller it is follows from the object, see [KindOf]. All of them are
// reached through the ports of package cluster, and every change is conditional on
// what was read before, because the controllers write the same objects all the
// time.
package operator
