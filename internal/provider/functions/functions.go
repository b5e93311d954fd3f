// SPDX-License-Identifier: MPL-2.0

// Package functions contains the functions of the provider. They are pure: they do not depend on the configuration
// of the provider, and access nothing.
package functions

import "github.com/hashicorp/terraform-plugin-framework/function"

// All returns the constructors of all functions of the provider.
func All() []func() function.Function {
	return []func() function.Function{
		newCompatibleFunction,
		newInstallerImageFunction,
		newKubernetesVersionsFunction,
		newUpgradePathFunction,
	}
}
