// SPDX-License-Identifier: MPL-2.0

// Package gcs stands in for a module that is published nowhere; no test keeps its state there.
package gcs

import "github.com/hashicorp/terraform/internal/backend"

// New is called for a configuration that asks for this backend.
func New() backend.Backend { panic("this terraform is built without the backend gcs") }
