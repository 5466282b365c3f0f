package processes

import (
	"maps"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/presence"
)

// Mixed returns a sentence for each service of which processes of several versions are alive.
func Mixed(list []Process) (sentences []string) {
	services := map[string]map[string][]string{}
	for n := range list {
		p := &list[n]
		if !p.Alive || p.Version == "" {
			continue
		}
		if services[p.Service] == nil {
			services[p.Service] = map[string][]string{}
		}
		services[p.Service][p.Version] = append(services[p.Service][p.Version], p.Name)
	}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		versions := services[service]
		if len(versions) < 2 {
			continue
		}
		sentences = append(sentences, "Several versions of "+service+" run: "+versionsOf(versions)+".")
	}
	return sentences
}

// FailsIn says in which versions messages of a cause failed last, if the consumer runs in another version, too, where none did. failedBy are the processes
// whose tries failed last (failures.Tally.FailedBy). runs is true if one of the versions in which they failed still runs. sentence is "" if no other version
// runs the consumer, or if a version is not known.
func FailsIn(list []Process, consumer string, failedBy []string) (sentence string, runs bool) {
	ended, failing, others := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, by := range failedBy {
		name, version := presence.Signer(by)
		if version == "" {
			return "", false
		}
		ended[version] = append(ended[version], name)
	}
	for n := range list {
		p := &list[n]
		// Another program may have the same version, and not run the consumer.
		if by, fails := ended[p.Version]; fails && p.Alive && (p.has(consumer) || slices.Contains(by, p.Name)) {
			failing[p.Version] = by
		}
	}
	for version := range failing {
		delete(ended, version)
	}
	for n := range list {
		p := &list[n]
		if p.Alive && p.Version != "" && p.has(consumer) && failing[p.Version] == nil {
			others[p.Version] = append(others[p.Version], p.Name)
		}
	}
	switch {
	case len(ended)+len(failing) == 0 || len(others) == 0:
		return "", false
	case len(failing) == 0:
		return "Their last tries failed in " + versionsOf(ended) + ", which no longer runs. " + versionsOf(others) + " tries them next.", false
	}
	sentence = "Their last tries failed only in " + versionsOf(failing) + ", and none in " + versionsOf(others) + ", which runs " + consumer + ", too."
	if len(ended) > 0 {
		sentence += " Tries failed in " + versionsOf(ended) + " as well, which no longer runs."
	}
	return sentence, true
}

// versionsOf lists versions with their processes.
func versionsOf(all map[string][]string) string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, version+" ("+strings.Join(all[version], ", ")+")")
	}
	return strings.Join(parts, ", ")
}
