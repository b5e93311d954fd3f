// SPDX-License-Identifier: MPL-2.0

// Package wording checks what people read if something is wrong: the failures of the engine, the findings of checks,
// and the diagnostics of the provider. It is only for tests.
//
// The tests of a package record the messages of the code while they run ([Note]). The recorded messages are shown in
// testdata, one page for each package, and [Runner] compares them with the page. The tests of this package want every
// text of the sources ([Texts]) to be on a page, the pages to have the right shape, and the guide to cover every
// message.
package wording
