package configdoc

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/retry"
)

// planted has variables with other names than their fields.
type planted struct {
	MaxWait  time.Duration `env:"MAX_PAUSE"`
	LeaseTTL time.Duration `env:"LEASE_TTL"`
	NKeyFile string        `env:"NKEY_FILE"`
	Retry    retry.Policy  `envPrefix:"QUICK_"`
	Box      struct{}      `envPrefix:"INBOX_"`
	Unit     struct{}      `envPrefix:"UOW_UNIT_"`
	Shared   struct{}
}

func TestVariableWithAnotherNameThanItsField(t *testing.T) {
	within := reflect.TypeFor[planted]()
	var errs []error
	for f := range within.Fields() {
		errs = append(errs, misnamed("a.Config", reflect.StructField{}, f), misnamedSection("a.Config", f))
		if isPart(f.Type) {
			delay, _ := f.Type.FieldByName("Delay")
			errs = append(errs, misnamed("a.Config", f, delay))
			f.Anonymous, f.Tag = true, "" // its fields are those of the struct
			errs = append(errs, misnamed("a.Config", f, delay))
		}
	}
	require.EqualError(t, errors.Join(errs...), "a.Config.MaxWait: its variable is called MAX_PAUSE, and a field of this name has the variable MAX_WAIT: "+
		"rename one of them\n"+
		"a.Config.Retry: its variables begin with QUICK_, and those of a field of this name begin with RETRY_: rename one of them\n"+
		"a.Config.Retry.Delay: its variable is called QUICK_DELAY, and a field of this name has the variable RETRY_DELAY: rename one of them\n"+
		"a.Config.Box: its variables begin with INBOX_, and those of a field of this name begin with BOX_: rename one of them")
}
