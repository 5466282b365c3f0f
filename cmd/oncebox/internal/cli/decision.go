package cli

import (
	"github.com/spf13/pflag"

	"github.com/oncebox/oncebox/operator"
)

// Endings of the help texts of a decision's flags.
const (
	Required  = " (required)"
	ButDryRun = " (required, but for --dry-run)"
	Optional  = ""
)

// DecisionFlags adds the flags of a command that changes something: --by and --why for the audit, and --yes. who and
// why end the help texts of --by and --why, for example [Required].
func DecisionFlags(flags *pflag.FlagSet, by *operator.By, yes *bool, who, why string) {
	flags.StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit"+who)
	flags.StringVar(&by.Reason, "why", "", "why, for the audit"+why)
	flags.BoolVar(yes, "yes", false, "do not ask")
}
