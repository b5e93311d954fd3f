// SPDX-License-Identifier: MPL-2.0

package version

// Product is what has a version of its own in a cluster. Its text is how keys of
// annotations and names of attributes begin.
type Product string

// The products.
const (
	Talos      Product = "talos"
	Kubernetes Product = "kubernetes"
)

// Name is the product as people write it.
func (p Product) Name() string {
	if p == Kubernetes {
		return "Kubernetes"
	}

	return "Talos"
}
