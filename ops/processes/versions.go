package processes

import (
	"maps"
	"slices"
	"strings"
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
		var parts []string
		for _, version := range slices.Sorted(maps.Keys(versions)) {
			parts = append(parts, version+" ("+strings.Join(versions[version], ", ")+")")
		}
		sentences = append(sentences, "Several versions of "+service+" run: "+strings.Join(parts, ", ")+".")
	}
	return sentences
}
