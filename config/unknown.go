package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/oncebox/oncebox/internal/misspelt"
)

// ignore is the variable that lists names to leave alone.
const ignore = prefix + "IGNORE"

// memory begins the variables of the broker in memory.
const memory = prefix + "MEMORY_"

// process begins the variables of package serve.
const process = prefix + "SERVE_"

// brokers are the prefixes that programs read if they use these brokers.
//
//nolint:gochecknoglobals // a constant list
var brokers = []string{prefix + "PULSAR_", prefix + "NATS_", prefix + "KAFKA_", prefix + "RABBITMQ_", memory}

// serviceLink is how Kubernetes ends the variables that it makes of a service's name: a service oncebox-api gives the containers beside
// it ONCEBOX_API_SERVICE_HOST and others (kubernetes.io, "Accessing the Service", environment variables).
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// unknown returns an error for each variable that is set, begins with our prefix and has no field.
func unknown(begin string, fields []env.FieldParams) error {
	if !strings.HasPrefix(begin, prefix) {
		return nil // the prefix may be that of a whole program, with more in it than this struct
	}
	known, left := []string{ignore}, []string{}
	for _, f := range fields {
		known = append(known, f.Key)
	}
	if begin == prefix {
		ours, err := env.GetFieldParamsWithOptions(&Config{}, env.Options{Prefix: prefix})
		if err != nil {
			return err
		}
		for _, f := range ours {
			known = append(known, f.Key)
		}
		left = append([]string{process}, brokers...)
		known = append(known, addresses()...) // the names that are misspelt most easily
	}
	listed := strings.Split(os.Getenv(ignore), ",")
	var errs []error
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case value == "", !strings.HasPrefix(name, begin), slices.Contains(known, name), serviceLink.MatchString(name), fits(name, listed),
			slices.ContainsFunc(left, func(other string) bool { return strings.HasPrefix(name, other) }):
		default:
			errs = append(errs, fmt.Errorf("%s does not exist: %s, or list it in %s if it is another program's", name, instead(name, known), ignore))
		}
	}
	return errors.Join(errs...)
}

// fits reports whether the list has the name, or a beginning of it with a * behind.
func fits(name string, list []string) bool {
	return slices.ContainsFunc(list, func(one string) bool {
		one = strings.TrimSpace(one)
		begin, open := strings.CutSuffix(one, "*")
		return one == name || open && strings.HasPrefix(name, begin)
	})
}

// instead says what to do about a name that does not exist. A name that differs in more than a third was not meant.
func instead(name string, known []string) string {
	nearest := slices.MinFunc(known, func(a, b string) int { return misspelt.Distance(name, a) - misspelt.Distance(name, b) })
	switch {
	case misspelt.Distance(name, nearest) <= (len(name)-len(prefix))/3:
		return "set " + nearest
	case strings.HasSuffix(name, "_URL"):
		all := addresses()
		return "the addresses of brokers are " + strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
	default:
		return "docs/config.md lists the names"
	}
}

// addresses returns the variables with the addresses of brokers. The broker in memory has none.
func addresses() (names []string) {
	for _, one := range brokers {
		if one != memory {
			names = append(names, one+"URL")
		}
	}
	return names
}
