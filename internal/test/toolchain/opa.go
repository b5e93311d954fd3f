// SPDX-License-Identifier: MPL-2.0

package toolchain

import "context"

// OPA returns the path of the Open Policy Agent that internal/tools/opa pins. The first
// call on a machine compiles it.
func OPA(ctx context.Context, options Options) (string, error) {
	return pinned{
		name: "opa", tool: "github.com/open-policy-agent/opa", notice: "building OPA: once, a minute or two",
	}.build(ctx, options)
}
