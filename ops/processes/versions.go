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
// whose tries failed last (failures.Tally.FailedBy). "": no other version runs it, or a version is not known.
func FailsIn(list []Process, consumer string, failedBy []string) string {
	failing, others := map[string][]string{}, map[string][]string{}
	for _, by := range failedBy {
		name, version := presence.Signer(by)
		if version == "" {
			return ""
		}
		failing[version] = append(failing[version], name)
	}
	for n := range list {
		p := &list[n]
		_, fails := failing[p.Version]
		runs := slices.ContainsFunc(p.Consumers, func(r Running) bool { return r.Consumer == consumer })
		if p.Alive && p.Version != "" && runs && !fails {
			others[p.Version] = append(others[p.Version], p.Name)
		}
	}
	if len(failing) == 0 || len(others) == 0 {
		return ""
	}
	return "Their last tries failed only in " + versionsOf(failing) + ", and none in " + versionsOf(others) + ", which runs " + consumer + ", too."
}

// versionsOf lists versions with their processes.
func versionsOf(all map[string][]string) string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, version+" ("+strings.Join(all[version], ", ")+")")
	}
	return strings.Join(parts, ", ")
}
