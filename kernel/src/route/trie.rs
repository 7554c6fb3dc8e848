//! Topic filters as a tree of levels; finds those that match a topic name.
//!
//! Owns: one node per distinct prefix of a filter. Never: knows who subscribed.
//!
//! Invariants:
//! 1. A node exists only if a filter in the trie ends at it or below it; the last `remove` leaves the root alone.
//! 2. No recursion: a walk goes level by level with the set of nodes reached so far, so depth costs no stack.
//!
//! Level texts are interned, and all edges stand in one table from (parent, level) to child. A topic's level is
//! hashed once for all branches of the walk, a node costs some 40 bytes without a table of its own, and a node with a
//! hundred thousand children is nothing special.

use ahash::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// A filter's number in the trie, while it is in it; small, and reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u32);

impl Place {
    /// The place as an index into a table kept beside the trie.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

const ROOT: Place = Place(0);

/// How a node hangs on its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// By a level's text, interned.
    Literal(u32),
    /// By `+`.
    Any,
    /// By `#`.
    Rest,
}

#[derive(Debug, Clone)]
struct Node {
    parent: Place,
    edge: Edge,
    /// The child by `+`.
    any: Option<Place>,
    /// The child by `#`.
    rest: Option<Place>,
    /// Children by a level's text.
    literals: u32,
    /// A filter ends here.
    occupied: bool,
}

impl Node {
    fn new(parent: Place, edge: Edge) -> Node {
        Node { parent, edge, any: None, rest: None, literals: 0, occupied: false }
    }

    fn is_needed(&self) -> bool {
        self.occupied || self.literals > 0 || self.any.is_some() || self.rest.is_some()
    }
}

/// What a walk reuses from one topic to the next.
#[derive(Debug, Default)]
pub struct Walk {
    reached: Vec<Place>,
    next: Vec<Place>,
    /// Result: the filters that match, in no particular order, each once.
    pub found: Vec<Place>,
}

/// Filters by level.
#[derive(Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    free: Vec<Place>,
    edges: HashMap<(Place, u32), Place, RandomState>,
    levels: Levels,
}

impl Trie {
    /// An empty trie.
    pub fn new(hashing: RandomState) -> Trie {
        Trie {
            nodes: vec![Node::new(ROOT, Edge::Rest)],
            free: Vec::new(),
            edges: HashMap::with_hasher(hashing.clone()),
            levels: Levels::new(hashing),
        }
    }

    /// The place of a filter, made if it is new. The caller has checked that the filter is valid.
    pub fn insert(&mut self, filter: &[u8]) -> Place {
        let mut place = ROOT;
        for level in filter.split(|byte| *byte == b'/') {
            place = match self.child(place, level) {
                Some(child) => child,
                None => self.grow(place, level),
            };
        }
        if let Some(node) = self.node_mut(place) {
            node.occupied = true;
        }
        place
    }

    /// The place of a filter that is in the trie.
    pub fn find(&self, filter: &[u8]) -> Option<Place> {
        let mut levels = filter.split(|byte| *byte == b'/');
        let place = levels.try_fold(ROOT, |place, level| self.child(place, level))?;
        self.node(place).is_some_and(|node| node.occupied).then_some(place)
    }

    /// The filter at a place.
    pub fn filter(&self, place: Place) -> Vec<u8> {
        let mut levels: Vec<&[u8]> = Vec::new();
        let mut place = place;
        while let Some(node) = self.node(place).filter(|_| place != ROOT) {
            levels.push(match node.edge {
                Edge::Literal(level) => self.levels.text(level),
                Edge::Any => b"+",
                Edge::Rest => b"#",
            });
            place = node.parent;
        }
        levels.reverse();
        levels.join(&b'/')
    }

    /// Takes a filter out, with the nodes that nothing else needs.
    pub fn remove(&mut self, place: Place) {
        let mut place = place;
        if let Some(node) = self.node_mut(place) {
            node.occupied = false;
        }
        while let Some(node) = self.node(place).filter(|node| place != ROOT && !node.is_needed()) {
            let (parent, edge) = (node.parent, node.edge);
            self.cut(parent, edge);
            self.free.push(place);
            place = parent;
        }
    }

    /// The number of nodes, the root included, and of distinct level texts.
    pub fn size(&self) -> (usize, usize) {
        (self.nodes.len() - self.free.len(), self.levels.numbers.len())
    }

    /// Finds the filters that match a topic name; see [`crate::topic::matches`] for the rules.
    pub fn walk(&self, name: &[u8], walk: &mut Walk) {
        let Walk { reached, next, found } = walk;
        found.clear();
        reached.clear();
        reached.push(ROOT);
        // A leading wildcard does not match names that start with `$` [MQTT-4.7.2-1].
        let mut wildcards_match = name.first() != Some(&b'$');
        for level in name.split(|byte| *byte == b'/') {
            let number = self.levels.number(level);
            next.clear();
            for place in reached.iter().copied() {
                let Some(node) = self.node(place) else { continue };
                if wildcards_match {
                    found.extend(node.rest);
                    next.extend(node.any);
                }
                if let Some(number) = number.filter(|_| node.literals > 0) {
                    next.extend(self.edges.get(&(place, number)));
                }
            }
            wildcards_match = true;
            std::mem::swap(reached, next);
            if reached.is_empty() {
                return;
            }
        }
        for place in reached.iter().copied() {
            let Some(node) = self.node(place) else { continue };
            found.extend(node.occupied.then_some(place));
            // `#` matches its parent level too (MQTT 5 section 4.7.1.2).
            found.extend(node.rest);
        }
    }

    fn node(&self, place: Place) -> Option<&Node> {
        self.nodes.get(place.index())
    }

    fn node_mut(&mut self, place: Place) -> Option<&mut Node> {
        self.nodes.get_mut(place.index())
    }

    fn child(&self, place: Place, level: &[u8]) -> Option<Place> {
        let node = self.node(place)?;
        match level {
            b"+" => node.any,
            b"#" => node.rest,
            _ => self.edges.get(&(place, self.levels.number(level)?)).copied(),
        }
    }

    /// Adds a child that is not there yet.
    fn grow(&mut self, parent: Place, level: &[u8]) -> Place {
        let edge = match level {
            b"+" => Edge::Any,
            b"#" => Edge::Rest,
            _ => Edge::Literal(self.levels.intern(level)),
        };
        let node = Node::new(parent, edge);
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.nodes.push(node.clone());
                Place(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if let Some(reused) = self.node_mut(place) {
            *reused = node;
        }
        if let Edge::Literal(level) = edge {
            self.edges.insert((parent, level), place);
        }
        if let Some(parent) = self.node_mut(parent) {
            match edge {
                Edge::Literal(_) => parent.literals += 1,
                Edge::Any => parent.any = Some(place),
                Edge::Rest => parent.rest = Some(place),
            }
        }
        place
    }

    /// Takes a child off its parent.
    fn cut(&mut self, parent: Place, edge: Edge) {
        if let Edge::Literal(level) = edge {
            self.edges.remove(&(parent, level));
            self.levels.release(level);
        }
        if let Some(parent) = self.node_mut(parent) {
            match edge {
                Edge::Literal(_) => parent.literals -= 1,
                Edge::Any => parent.any = None,
                Edge::Rest => parent.rest = None,
            }
        }
    }
}

/// The texts of levels, each stored once and counted by the edges that use it.
#[derive(Debug)]
struct Levels {
    numbers: HashMap<Arc<[u8]>, u32, RandomState>,
    texts: Vec<(Arc<[u8]>, u32)>,
    free: Vec<u32>,
}

impl Levels {
    fn new(hashing: RandomState) -> Levels {
        Levels { numbers: HashMap::with_hasher(hashing), texts: Vec::new(), free: Vec::new() }
    }

    fn number(&self, text: &[u8]) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    fn text(&self, number: u32) -> &[u8] {
        self.entry(number).map_or(b"", |(text, _)| text)
    }

    fn entry(&self, number: u32) -> Option<&(Arc<[u8]>, u32)> {
        self.texts.get(usize::try_from(number).ok()?)
    }

    fn entry_mut(&mut self, number: u32) -> Option<&mut (Arc<[u8]>, u32)> {
        self.texts.get_mut(usize::try_from(number).ok()?)
    }

    /// The number of a text, counted once more.
    fn intern(&mut self, text: &[u8]) -> u32 {
        let number = match self.number(text) {
            Some(number) => number,
            None => self.add(text),
        };
        if let Some((_, uses)) = self.entry_mut(number) {
            *uses += 1;
        }
        number
    }

    fn add(&mut self, text: &[u8]) -> u32 {
        let text: Arc<[u8]> = text.into();
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.texts.push((text.clone(), 0));
                u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(entry) = self.entry_mut(number) {
            *entry = (text.clone(), 0);
        }
        self.numbers.insert(text, number);
        number
    }

    /// One edge less uses the text; the last one takes it out.
    fn release(&mut self, number: u32) {
        let Some((text, uses)) = self.entry_mut(number) else { return };
        *uses -= 1;
        if *uses == 0 {
            let text = std::mem::replace(text, Arc::new([]));
            self.numbers.remove(&text);
            self.free.push(number);
        }
    }
}
