// SPDX-License-Identifier: MPL-2.0

// Package oss stands in for a module that is published nowhere; no test keeps its state there.
package oss

import "github.com/hashicorp/terraform/internal/backend"

// New is called for a configuration that asks for this backend.
func New() backend.Backend { panic("this terraform is built without the backend oss") }
