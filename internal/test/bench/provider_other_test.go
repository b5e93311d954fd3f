// SPDX-License-Identifier: MPL-2.0

//go:build !linux

package bench_test

import "errors"

// serve needs Linux, on which processes record what they used.
func serve(string) error { return errors.New("the sockets half is measured on Linux") }
