// SPDX-License-Identifier: MPL-2.0

// Package catalogue lists the ways in which a cluster fails, as they look on the
// wire, what the provider makes of each, and the tests that carry its number in
// their names: TestCatalogue17_MemberIsWaitedFor is one of row 17. It is nothing
// but tests. CATALOGUE.md is the same table for people.
package catalogue
