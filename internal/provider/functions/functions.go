// SPDX-License-Identifier: MPL-2.0

// Package functions has the functions of the provider. They are pure: none of them knows
// how the provider is configured, or reaches anything.
package functions

import "github.com/hashicorp/terraform-plugin-framework/function"

// All makes every function of the provider.
func All() []func() function.Function {
	return []func() function.Function{
		newCompatibleFunction,
		newInstallerImageFunction,
		newKubernetesVersionsFunction,
		newUpgradePathFunction,
	}
}
