// SPDX-License-Identifier: MPL-2.0

// Package wording looks after what people read when something is wrong: the
// failures of the engine, the findings of checks, and the diagnostics of the
// provider. It is for tests alone.
//
// The tests of a package note what the code said while they ran it ([Note]). What
// they noted is shown in testdata, one page for each package, and [Runner] compares
// the page with it. The tests of this package see to it that every text of the sources
// ([Texts]) is on a page, that the pages keep to the shape, and that the guide speaks of
// everything.
package wording
