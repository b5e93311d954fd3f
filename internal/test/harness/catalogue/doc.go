// SPDX-License-Identifier: MPL-2.0

// Package catalogue lists the ways in which a cluster fails: what each looks like on the wire, what the provider does
// about it, and the tests that have its number in their names: TestCatalogue17_MemberIsWaitedFor belongs to row 17.
// The package has only tests. CATALOGUE.md is the same table for people.
package catalogue
