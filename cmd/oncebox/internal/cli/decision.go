package cli

import (
	"github.com/spf13/pflag"

	"github.com/oncebox/oncebox/operator"
)

// What the help says of a flag of a decision, behind its text.
const (
	Required  = " (required)"
	ButDryRun = " (required, but for --dry-run)"
	Optional  = ""
)

// DecisionFlags adds the flags of a command that changes something: --by and --why for the audit, and --yes. who and why are what their
// help says behind the text, for example [Required].
func DecisionFlags(flags *pflag.FlagSet, by *operator.By, yes *bool, who, why string) {
	flags.StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit"+who)
	flags.StringVar(&by.Reason, "why", "", "why, for the audit"+why)
	flags.BoolVar(yes, "yes", false, "do not ask")
}
