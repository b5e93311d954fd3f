// SPDX-License-Identifier: MPL-2.0

package version

// Product is software with its own version in a cluster. Keys of annotations and names of attributes begin with
// it.
type Product string

// The products.
const (
	Talos      Product = "talos"
	Kubernetes Product = "kubernetes"
)

// Name returns the product as people write it.
func (p Product) Name() string {
	if p == Kubernetes {
		return "Kubernetes"
	}

	return "Talos"
}
