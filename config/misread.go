package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/oncebox/oncebox/retry"
)

// misread returns, for each variable that could not be parsed, an error with its value and what is expected. Package env names only the field, and
// fields of several structs may have one name, so each variable is parsed once more by itself.
func misread(prefix string, cfg any, vars map[string]string, failed error) error {
	all, ok := errors.AsType[env.AggregateError](failed)
	if !ok {
		return failed
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fresh := reflect.New(reflect.TypeOf(cfg).Elem()).Interface()
		err := parse(prefix, fresh, map[string]string{name: vars[name]})
		if wrong, ok := errors.AsType[env.ParseError](err); ok {
			errs = append(errs, misfit(name, vars[name], wrong))
		}
	}
	for _, err := range all.Errors {
		switch wrong := err.(type) { //nolint:errorlint // package env wraps none of them
		case env.ParseError: // misfit has it
		case env.VarIsNotSetError:
			errs = append(errs, absent(wrong.Key))
		case env.EmptyVarError:
			errs = append(errs, absent(wrong.Key))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func absent(name string) error { return fmt.Errorf("%s is not set, or empty: it is required", name) }

// misfit is the error about one value. A type that reads its value itself knows what is wrong, and whether that may be shown. The entries of a map are
// often tokens or passwords, which must not reach a log.
func misfit(name, value string, wrong env.ParseError) error {
	t := wrong.Type
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return fmt.Errorf("%s cannot be used: %w", name, wrong.Err)
	case t.Kind() == reflect.Map:
		return fmt.Errorf("%s has an entry that is not key:value: give such entries, separated by commas", name)
	case t == reflect.TypeFor[time.Duration]() && strings.HasPrefix(name, prefix):
		return fmt.Errorf("%s is %q: give %s, or -1 where that is off", name, value, expected(t))
	}
	return fmt.Errorf("%s is %q: give %s", name, value, expected(t))
}

// expected says what a field takes.
func expected(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms, 2s or 168h"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case reflect.Zero(t).CanInt(), reflect.Zero(t).CanUint():
		return fmt.Sprintf("a whole number (%s)", t)
	default:
		return "a " + t.String()
	}
}

// field finds the fields in what a Validate says.
var field = regexp.MustCompile(`\w*Config(\.\w+)+`)

// inVariables replaces the names of fields in the errors of Validate with the names of their variables, for a reader who has set variables.
func inVariables(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range list.Unwrap() {
			errs = append(errs, inVariables(err))
		}
		return errors.Join(errs...)
	}
	pkg, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "event: "), ": ")
	names := variables(reflect.TypeFor[Config](), "config", "Config", prefix)
	found := false
	text = field.ReplaceAllStringFunc(text, func(name string) string {
		variable, ok := names[pkg+": "+name]
		if !ok {
			return name
		}
		found = true
		return variable
	})
	if !found {
		return err
	}
	return errors.New(text)
}

// variables returns the names of the variables of a struct's fields, also of nested structs. Its keys are "uow: Config.Source" and the like, which
// is how errors name the fields.
func variables(t reflect.Type, pkg, path, prefix string) map[string]string {
	names := map[string]string{}
	for f := range t.Fields() {
		of, at := pkg, path+"."+f.Name
		if f.Anonymous {
			at = path
		}
		switch name, tagged := f.Tag.Lookup("env"); {
		case tagged:
			names[pkg+": "+at] = prefix + name
		case f.Type.Kind() == reflect.Struct:
			if f.Type.PkgPath() != t.PkgPath() && f.Type != reflect.TypeFor[retry.Policy]() { // a Config, which names its own fields
				of, at = strings.TrimSuffix(f.Type.String(), "."+f.Type.Name()), f.Type.Name()
			}
			maps.Copy(names, variables(f.Type, of, at, prefix+f.Tag.Get("envPrefix")))
		}
	}
	return names
}
