//! The tables of a dashboard, and its JSON for Grafana.

use serde_json::{Value, json};

/// A dashboard.
pub(super) struct Dashboard {
    /// Its name in addresses, and that of its file.
    pub(super) uid: &'static str,
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) variables: &'static [Variable],
    pub(super) rows: &'static [Row],
}

/// A choice above the panels.
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// A metric and the label whose values can be chosen.
    pub(super) query: &'static str,
    pub(super) label: &'static str,
}

/// Panels under a heading.
pub(super) struct Row {
    pub(super) title: &'static str,
    /// Whether its panels are hidden until somebody opens it.
    pub(super) closed: bool,
    pub(super) panels: &'static [Panel],
}

/// A picture of the answers to queries.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) shape: Shape,
    /// Grafana's name of the unit.
    pub(super) unit: &'static str,
    /// Of the 24 columns.
    pub(super) width: u32,
    /// Each with the text of its legend.
    pub(super) queries: &'static [(&'static str, &'static str)],
    pub(super) steps: Steps,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Lines,
    /// Lines on top of each other, whose sum means something.
    Stack,
    /// One number each.
    Number,
    Bars,
    Table,
}

/// From which values on a panel takes a colour.
#[derive(Clone, Copy)]
pub(super) enum Steps {
    /// No value is bad.
    None,
    /// Red from here on.
    BadFrom(f64),
    /// Yellow from the first value on, red from the second.
    WarnFrom(f64, f64),
    /// Red below this.
    BadBelow(f64),
}

/// The series whose exemplars are shown.
const WITH_EXEMPLARS: &str = "joulie_operator_budget_moves_total";
const HEIGHT: u32 = 8;
const HEIGHT_OF_NUMBER: u32 = 4;
const COLUMNS: u32 = 24;

impl Dashboard {
    pub(super) fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }

    /// A query without Grafana's variables.
    pub(super) fn plain(&self, query: &str) -> String {
        let mut plain = query.replace("$__rate_interval", "1m").replace("$__range", "1h");
        for variable in self.variables {
            plain = plain.replace(&format!("${}", variable.name), ".*");
        }
        plain
    }

    pub(super) fn json(&self) -> Value {
        let mut place = Place { x: 0, y: 0, row_height: 0 };
        let mut id = 0;
        let mut panels = Vec::new();
        for row in self.rows {
            place.new_line();
            id += 1;
            let heading = json!({"h": 1, "w": COLUMNS, "x": 0, "y": place.y});
            place.y += 1;
            let of_row = id;
            let mut inside = Vec::new();
            for panel in row.panels {
                id += 1;
                inside.push(panel.json(id, &place.take(panel)));
            }
            let (hidden, shown) = if row.closed { (inside, Vec::new()) } else { (Vec::new(), inside) };
            panels.push(json!({
                "id": of_row, "type": "row", "title": row.title, "collapsed": row.closed, "gridPos": heading,
                "panels": hidden,
            }));
            panels.extend(shown);
            if row.closed {
                // What is hidden takes no room.
                place = Place { x: 0, y: heading_end(&panels), row_height: 0 };
            }
        }
        json!({
            "uid": self.uid, "title": self.title, "description": self.about, "tags": ["joulie"],
            "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
            "links": [{"type": "dashboards", "title": "Joulie", "tags": ["joulie"], "asDropdown": true, "keepTime": true,
                "includeVars": true}],
            "annotations": {"list": [{"name": "Alerts", "enable": true, "iconColor": "red",
                "datasource": datasource(), "titleFormat": "{{alertname}}", "textFormat": "{{node}}{{group}}{{component}}",
                "expr": "max by (alertname, node, group, component) (ALERTS{alertname=~\"Joulie.*\", alertstate=\"firing\"})"}]},
            "templating": {"list": self.choices()},
            "panels": panels,
        })
    }

    fn choices(&self) -> Vec<Value> {
        let mut all = vec![
            json!({"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}),
        ];
        all.extend(self.variables.iter().map(|variable| {
            let query = format!("label_values({}, {})", variable.query, variable.label);
            json!({
                "name": variable.name, "label": variable.name, "type": "query", "datasource": datasource(),
                "query": {"query": query, "refId": variable.name}, "definition": query, "refresh": 2, "sort": 1,
                "multi": true, "includeAll": true, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
            })
        }));
        all
    }
}

/// The line after the last heading.
fn heading_end(panels: &[Value]) -> u32 {
    let y = panels.last().and_then(|row| row["gridPos"]["y"].as_u64()).unwrap_or(0);
    u32::try_from(y).unwrap_or(0) + 1
}

/// Where the next panel goes.
struct Place {
    x: u32,
    y: u32,
    row_height: u32,
}

impl Place {
    fn new_line(&mut self) {
        (self.x, self.y, self.row_height) = (0, self.y + self.row_height, 0);
    }

    fn take(&mut self, panel: &Panel) -> Value {
        let height = if panel.shape == Shape::Number { HEIGHT_OF_NUMBER } else { HEIGHT };
        if self.x + panel.width > COLUMNS {
            self.new_line();
        }
        let taken = json!({"h": height, "w": panel.width, "x": self.x, "y": self.y});
        self.x += panel.width;
        self.row_height = self.row_height.max(height);
        taken
    }
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

impl Panel {
    fn json(&self, id: u32, place: &Value) -> Value {
        let at_once = matches!(self.shape, Shape::Number | Shape::Bars | Shape::Table);
        let target = |(number, (query, legend)): (u8, &(&str, &str))| {
            let mut target = json!({
                "refId": char::from(b'A' + number).to_string(), "expr": query, "legendFormat": legend,
                "datasource": datasource(), "instant": at_once, "range": !at_once,
                "format": if self.shape == Shape::Table { "table" } else { "time_series" },
            });
            if query.contains(WITH_EXEMPLARS) {
                target["exemplar"] = json!(true);
            }
            target
        };
        let targets: Vec<Value> = (0_u8..).zip(self.queries).map(target).collect();
        let custom = json!({
            "fillOpacity": if self.shape == Shape::Stack { 30 } else { 5 }, "lineWidth": 1, "spanNulls": false,
            "stacking": {"mode": if self.shape == Shape::Stack { "normal" } else { "none" }},
            "thresholdsStyle": {"mode": if matches!(self.steps, Steps::None) { "off" } else { "line" }},
        });
        let plain = matches!(self.steps, Steps::None);
        let color = if plain { "palette-classic" } else { "thresholds" };
        let color = if matches!(self.shape, Shape::Lines | Shape::Stack) { "palette-classic" } else { color };
        let mut defaults = json!({
            "unit": self.unit, "color": {"mode": color},
            "thresholds": {"mode": "absolute", "steps": self.steps.json()},
        });
        if matches!(self.shape, Shape::Lines | Shape::Stack) {
            defaults["custom"] = custom;
        }
        json!({
            "id": id, "type": self.shape.kind(), "title": self.title, "description": self.about, "gridPos": place,
            "datasource": datasource(), "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": self.shape.options(), "targets": targets, "transformations": self.shape.transformations(),
        })
    }
}

impl Shape {
    const fn kind(self) -> &'static str {
        match self {
            Self::Lines | Self::Stack => "timeseries",
            Self::Number => "stat",
            Self::Bars => "bargauge",
            Self::Table => "table",
        }
    }

    fn options(self) -> Value {
        let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        match self {
            Self::Lines | Self::Stack => json!({
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Self::Number => {
                json!({"reduceOptions": last, "colorMode": "background", "graphMode": "area", "textMode": "auto"})
            }
            Self::Bars => {
                json!({"reduceOptions": last, "orientation": "horizontal", "displayMode": "gradient"})
            }
            Self::Table => json!({"showHeader": true, "sortBy": [{"displayName": "Value", "desc": true}]}),
        }
    }

    fn transformations(self) -> Value {
        match self {
            Self::Table => json!([{"id": "organize", "options": {"excludeByName": {"Time": true}}}]),
            Self::Lines | Self::Stack | Self::Number | Self::Bars => json!([]),
        }
    }
}

impl Steps {
    fn json(self) -> Value {
        match self {
            Self::None => json!([{"color": "green", "value": null}]),
            Self::BadFrom(bad) => json!([{"color": "green", "value": null}, {"color": "red", "value": bad}]),
            Self::WarnFrom(warn, bad) => json!([
                {"color": "green", "value": null}, {"color": "yellow", "value": warn}, {"color": "red", "value": bad},
            ]),
            Self::BadBelow(good) => {
                json!([{"color": "red", "value": null}, {"color": "green", "value": good}])
            }
        }
    }
}
