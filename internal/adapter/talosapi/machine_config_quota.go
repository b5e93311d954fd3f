// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"fmt"
	"strconv"
)

const (
	// quotaArgument is etcd's argument for the largest size of its database.
	quotaArgument = "quota-backend-bytes"
	// unlimitedQuota stands for a quota that is switched off: more than any disk
	// has, and little enough to calculate with.
	unlimitedQuota = 1 << 56
)

// etcdQuota reads the value of etcd's quota in bytes, as a machine configuration
// spells it: a text, a number, or from Talos 1.14 on a list, of which the last
// one counts. It is 0 where none is set or where it is no number, with which
// etcd would not start, and [unlimitedQuota] where it is negative, with which
// etcd knows no limit.
func etcdQuota(value any) int64 {
	if list, ok := value.([]any); ok {
		if len(list) == 0 {
			return 0
		}

		value = list[len(list)-1]
	}

	var text string

	switch value := value.(type) {
	case string:
		text = value
	case int, int64, uint64:
		text = fmt.Sprint(value)
	}

	// As etcd reads its flags.
	quota, err := strconv.ParseInt(text, 0, 64)

	switch {
	case err != nil:
		return 0
	case quota < 0:
		return unlimitedQuota
	default:
		return min(quota, unlimitedQuota)
	}
}
