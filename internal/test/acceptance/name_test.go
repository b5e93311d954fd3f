// SPDX-License-Identifier: MPL-2.0

package acceptance

import "fmt"

// name returns the name of a machine in the simulator.
func name(role string, index int) string { return fmt.Sprintf("%s-%d", role, index) }
