// SPDX-License-Identifier: MPL-2.0

// Package terraform stands in for a module that is published nowhere; only a test of Terraform's own imports it.
package terraform
