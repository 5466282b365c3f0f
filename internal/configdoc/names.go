package configdoc

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

var boundary = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// named returns the name of a field as a variable has it: MaxDelay is MAX_DELAY, and TLSFile is TLS_FILE.
func named(field string) string {
	field = strings.ReplaceAll(field, "NKey", "Nkey") // one word
	return strings.ToUpper(boundary.ReplaceAllString(field, "${1}${3}_${2}${4}"))
}

// misnamed returns an error if the variable of a field does not have the field's name, because a reader of one of them has to guess the other.
// within is the struct of the Config that contains the field, and is empty if the Config has the field itself.
func misnamed(of string, within, f reflect.StructField) error {
	tag, want, field := within.Tag.Get("envPrefix")+f.Tag.Get("env"), named(f.Name), f.Name
	if within.Name != "" && !within.Anonymous {
		want, field = named(within.Name)+"_"+want, within.Name+"."+field
	}
	if f.Tag.Get("env") == "" || tag == want {
		return nil
	}
	return fmt.Errorf("%s.%s: its variable is called %s, and a field of this name has the variable %s: rename one of them", of, field, tag, want)
}

// misnamedSection is misnamed for a Config within another one. A Config may share the prefix of its parent, and may have a longer prefix than its
// name. The relay's variables begin like those of the outbox, because operators see it as a part of the outbox.
func misnamedSection(of string, f reflect.StructField) error {
	prefix, want := f.Tag.Get("envPrefix"), named(f.Name)+"_"
	if prefix == "" || strings.HasSuffix("_"+prefix, "_"+want) || of == "config.Config" && f.Name == "Projector" && prefix == "OUTBOX_" {
		return nil
	}
	return fmt.Errorf("%s.%s: its variables begin with %s, and those of a field of this name begin with %s: rename one of them", of, f.Name, prefix, want)
}
