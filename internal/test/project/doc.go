// SPDX-License-Identifier: MPL-2.0

// Package project tests what surrounds the code: the workflows, the fragments of the changelog, and the files that a
// release publishes, which make snapshot builds before it runs the tests. The package has only tests.
package project
