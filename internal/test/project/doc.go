// SPDX-License-Identifier: MPL-2.0

// Package project holds the tests of what surrounds the code, and nothing that
// is not a test: the workflows, the fragments of the changelog, and the files
// that a release publishes, which make snapshot builds before it runs them.
package project
