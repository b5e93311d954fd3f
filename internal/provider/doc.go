// SPDX-License-Identifier: MPL-2.0

// Package provider is what Terraform sees: schemas, models, diagnostics and
// the CRUD methods around the engine. Nothing in it decides about an upgrade.
package provider
