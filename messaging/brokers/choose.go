package brokers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// None is the name for no broker at all: the database carries the events.
const None = "none"

// known are the brokers that oncebox has adapters for. A program that is built without one of them recognizes its name and its variable, so that it
// does not go on as if no broker were meant.
func known() []string { return []string{"pulsar", "nats", "kafka", "rabbitmq"} }

// Choice is what a program can be asked to use.
type Choice struct {
	// Kinds are the brokers that the program is built with.
	Kinds []Kind
	// Flag is the flag of the program that names a broker, for error messages: "--broker". Default: it has no such flag.
	Flag string
	// Others returns how to get a program with another broker, by its name, for error messages. Default: nothing is said.
	Others func(name string) string
}

// Choose returns the kind with the name, which is usually the value of a flag. With an empty name it returns the kind whose address is in the
// environment. nil means no broker: the name is [None], or no address is set.
//
// Errors: the name is unknown; the program is built without the broker; its address is not set; or addresses of two brokers are set, and no name
// says which one is meant.
func (c *Choice) Choose(name string) (*Kind, error) {
	if name == None {
		return nil, nil
	}
	if name != "" {
		return c.named(name)
	}
	var set []string
	for _, one := range c.names() {
		if isSet(one) {
			set = append(set, one)
		}
	}
	switch {
	case len(set) > 1:
		return nil, fmt.Errorf("%s are both set: unset the variable of the broker that is not meant%s", listed(set[:2]), c.orFlag())
	case len(set) == 1:
		return c.built(set[0], variable(set[0])+" is set")
	case os.Getenv("PULSAR_URL") != "": // a name of other tools, so it counts only where nothing else is set
		return c.kind("pulsar"), nil
	}
	return nil, nil
}

// named returns the kind of a name that somebody has given.
func (c *Choice) named(name string) (*Kind, error) {
	if !slices.Contains(c.names(), name) {
		return nil, fmt.Errorf("there is no broker %q: give %s or %s", name, strings.Join(c.names(), ", "), None)
	}
	k, err := c.built(name, "the broker "+name+" is asked for")
	if err == nil && !isSet(name) && (name != "pulsar" || os.Getenv("PULSAR_URL") == "") {
		return nil, fmt.Errorf("the broker %s needs an address: set %s, for example to %s", name, k.Variable(), k.Example)
	}
	return k, err
}

// built returns the kind, or an error that begins with because.
func (c *Choice) built(name, because string) (*Kind, error) {
	if k := c.kind(name); k != nil {
		return k, nil
	}
	text := because + ", but this program is built without it"
	if c.Others != nil {
		text += ": " + c.Others(name)
	}
	return nil, errors.New(text)
}

func (c *Choice) kind(name string) *Kind {
	i := slices.IndexFunc(c.Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Kinds[i]
}

// names returns the names of all brokers. The names of this program's own brokers come first.
func (c *Choice) names() (all []string) {
	for n := range c.Kinds {
		all = append(all, c.Kinds[n].Name)
	}
	for _, name := range known() {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// Built returns the names of the kinds, for texts: "nats, kafka".
func (c *Choice) Built() string {
	return strings.Join(c.names()[:len(c.Kinds)], ", ")
}

// Variables returns the variables with the addresses of the kinds, for texts: "ONCEBOX_NATS_URL or ONCEBOX_KAFKA_URL".
func (c *Choice) Variables() string {
	var all []string
	for n := range c.Kinds {
		all = append(all, c.Kinds[n].Variable())
	}
	return strings.Join(all, " or ")
}

func (c *Choice) orFlag() string {
	if c.Flag == "" {
		return ""
	}
	return ", or name the broker with " + c.Flag
}

func listed(names []string) string {
	all := make([]string, len(names))
	for n, name := range names {
		all[n] = variable(name)
	}
	return strings.Join(all, " and ")
}
