package shop

import (
	"fmt"

	"github.com/oncebox/oncebox"
)

// Role is the set of parts that a process runs.
type Role string

// A service of one process has all roles; otherwise any number of processes may have each of the others.
const (
	RoleAll       Role = "all"
	RoleAPI       Role = "api"       // answers HTTP requests
	RoleProjector Role = "projector" // publishes the outbox
	RoleConsumer  Role = "consumer"  // builds the read model
)

// parseRole reads the flag.
func parseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case RoleAll, RoleAPI, RoleProjector, RoleConsumer:
		return r, nil
	default:
		return "", fmt.Errorf("-role %q is unknown: give all, api, projector or consumer", s)
	}
}

// parts returns the parts of oncebox for the role. Processes that write keys or messages also clean up.
func (r Role) parts() []oncebox.Part {
	switch r {
	case RoleAPI:
		return []oncebox.Part{oncebox.Cleaner}
	case RoleProjector:
		return []oncebox.Part{oncebox.Relay}
	case RoleConsumer:
		return []oncebox.Part{oncebox.Consumers, oncebox.Cleaner}
	default:
		return []oncebox.Part{oncebox.Relay, oncebox.Consumers, oncebox.Cleaner}
	}
}

// serves reports whether the role answers requests for orders.
func (r Role) serves() bool { return r == RoleAll || r == RoleAPI }
